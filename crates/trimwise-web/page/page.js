'use strict';
(() => {
const $ = id => document.getElementById(id);
const root = document.documentElement, status = $('status');
const system = matchMedia('(prefers-color-scheme: dark)'), still = matchMedia('(prefers-reduced-motion: reduce)');
let colours = {}, hatches = {};
function theme(name = $('theme').value || (system.matches ? 'dark' : 'light')) {
  root.dataset.theme = name;
  const style = getComputedStyle(root);
  for (const name of ['card', 'ink', 'soft', 'rule', 'valid', 'stale', 'invalid', 'free', 'erased', 'trimmed', 'left', 'right'])
    colours[name] = style.getPropertyValue('--' + name).trim();
  hatches = {};
  dirty = true;
}
let dirty = true, wasm, catalogue, sides, settings, speed = 4, paused = false, target = 0, owed = 0, last = 0, hovered = null, drawn = '';
const decoder = new TextDecoder(), encoder = new TextEncoder();
const output = bytes => decoder.decode(new Uint8Array(wasm.memory.buffer, wasm.trimwise_output(), bytes));
function fail(text) { status.textContent = text; status.className = 'bad'; $('progress').hidden = true; }

// Paper is light.
addEventListener('beforeprint', () => { theme('light'); if (sides?.[0].last) { sides.forEach(blocks); charts(); } });
addEventListener('afterprint', () => theme());
$('theme').onchange = () => theme(); system.onchange = () => theme(); theme();

function open(side, policy) {
  const text = encoder.encode(JSON.stringify({ ...settings, policy }));
  new Uint8Array(wasm.memory.buffer, wasm.trimwise_input(text.length), text.length).set(text);
  const bad = wasm.trimwise_open(side);
  if (bad) throw new Error(output(bad));
  return { side, policy, at: -1, now: 0, samples: [], erases: null, trimmed: null, glow: null, dots: null };
}
function restart() {
  status.className = '';
  sides = null; target = owed = 0; drawn = ''; dirty = true;
  try { sides = [open(0, $('left').value), open(1, $('right').value)]; } catch (e) { return fail(String(e.message)); }
  for (const { side, policy } of sides) $('name' + side).textContent = $('line' + side).textContent = policy;
  $('about').textContent = `trimwise ${catalogue.version}, seed ${settings.seed}. Drive: ${settings.drive}, shrunk to 2 GiB.`;
}
function read() {
  for (const id of ['fullness_percent', 'over_provisioning_percent', 'rate_mib_per_s']) {
    settings[id] = Number($(id).value);
    document.querySelector(`output[for=${id}]`).textContent = $(id).value;
  }
  settings.seed = Math.min(4294967295, Math.max(0, Math.trunc(Number($('seed').value) || 0)));
  settings.workload = $('workload').value; settings.drive = $('drive').value;
}
function choose(step, changes = {}) {
  const chosen = { ...JSON.parse(step.dataset.set), ...changes };
  for (const [id, value] of Object.entries(chosen)) {
    const control = $(id);
    if (control.options && ![...control.options].some(option => option.value === value)) control.add(new Option(value, value));
    control.value = value;
  }
  for (const other of $('steps').children) other.removeAttribute('aria-current');
  step.setAttribute('aria-current', 'step');
  step.querySelector('div').insertBefore($numbers, step.querySelector('.onward'));
  read(); restart();
}

// What a frame computes is bounded by the time that drawing leaves of it; virtual time alone decides what is computed.
const FRAME_MS = 11, LEAST_MS = 2, SLICE_MS = 5, STEP_MS = 500;
const frames = [];
let drawing = 3;
function simulate(begin) {
  const preparing = sides.some(side => side.at === -1), budget = Math.max(LEAST_MS, FRAME_MS - drawing);
  while (performance.now() - begin < budget) {
    const slow = sides.filter(side => side.at === -1 || (!preparing && side.at < target)).sort((a, b) => a.at - b.at || a.now - b.now)[0];
    if (!slow) break;
    slow.now += SLICE_MS;
    slow.at = wasm.trimwise_advance(slow.side, SLICE_MS, preparing ? 0 : Math.min(target, Math.max(slow.at, 0) + SLICE_MS));
    if (slow.at === -2) { const why = report(slow).failure; fail('The model stopped: ' + why); sides = null; return; }
  }
}
function report(side) {
  const json = JSON.parse(output(wasm.trimwise_report(side.side, side.samples.length)));
  side.samples.push(...json.samples);
  return json;
}
const behind = () => Math.min(...sides.map(side => side.at));
function frame(now) {
  requestAnimationFrame(frame);
  const elapsed = Math.min(100, now - last); last = now;
  if (!sides || (paused && !dirty && !owed)) return;
  const begin = performance.now(), preparing = behind() < 0;
  if (preparing) simulate(begin);
  else if (!paused) { target = Math.min(target + elapsed * speed, behind() + 250 * speed); simulate(begin); }
  else if (owed) { simulate(begin); if (sides && behind() >= target) owed = 0; }
  if (!sides) return;
  const simulated = performance.now();
  for (const side of sides) { side.last = report(side); blocks(side); }
  const prepared = behind() >= 0;
  $('progress').hidden = prepared;
  if (prepared) status.textContent = `${(behind() / 1000).toFixed(1)} s of virtual time${paused ? ', paused' : ''}`;
  else {
    $('progress').value = (sides[0].last.prepared_percent + sides[1].last.prepared_percent) / 2;
    status.textContent = `Preparing both drives: filled once, then deleted to ${settings.fullness_percent} %`;
  }
  // Lines and figures change with the samples only.
  const shown = sides.map(side => side.samples.length).join();
  if (dirty || shown !== drawn) { charts(); numbers(); drawn = shown; }
  dirty = false;
  const end = performance.now();
  drawing += ((end - simulated) - drawing) / 16;
  frames.push([simulated - begin, end - simulated, preparing]);
  if (frames.length > 3000) frames.shift();
}

function fit(canvas) {
  const ratio = Math.min(2, devicePixelRatio || 1), width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, canvas.clientWidth, canvas.clientHeight];
}
/** The hatch of stale pages, as in the legend: so that it differs from the others by more than its colour. */
function hatch(context, id) {
  if (hatches[id]) return hatches[id];
  const tile = document.createElement('canvas'), pen = tile.getContext('2d');
  tile.width = tile.height = 6;
  pen.fillStyle = colours.stale; pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = colours.card; pen.lineWidth = 1;
  pen.beginPath(); for (const d of [-6, 0, 6]) { pen.moveTo(d - 1, 7); pen.lineTo(d + 7, -1); } pen.stroke();
  return hatches[id] = context.createPattern(tile, 'repeat');
}
const WORDS = 7;
function blocks(side) {
  const bytes = wasm.trimwise_blocks(side.side);
  const words = new Uint32Array(wasm.memory.buffer.slice(wasm.trimwise_output(), wasm.trimwise_output() + bytes));
  const count = words.length / WORDS, size = side.last.superblock_units;
  if (!side.glow) { side.glow = new Float32Array(count); side.dots = new Float32Array(count); }
  const [context, width, height] = fit($('blocks' + side.side));
  const columns = Math.max(1, Math.round(Math.sqrt(count * width / height))), rows = Math.ceil(count / columns);
  const cell = width / columns, tall = height / rows, gap = Math.min(1, cell / 8), w = cell - 2 * gap, h = tall - 2 * gap;
  const totals = [0, 0, 0, 0], fade = still.matches ? 1 : .05;
  const place = i => [(i % columns) * cell + gap, Math.floor(i / columns) * tall + gap];
  // Colour by colour: changing it costs more than a rectangle.
  [colours.valid, hatch(context, side.side), colours.invalid, colours.free].forEach((colour, kind) => {
    context.fillStyle = colour;
    context.beginPath();
    for (let i = 0; i < count; i++) {
      const units = words[i * WORDS + kind];
      if (!units) continue;
      totals[kind] += units;
      let below = 0;
      for (let k = 0; k < kind; k++) below += words[i * WORDS + k];
      const [x, top] = place(i);
      context.rect(x, top + h * (1 - (below + units) / size), w, h * units / size);
    }
    context.fill();
  });
  for (let i = 0; i < count; i++) {
    if (side.erases && words[i * WORDS + 5] !== side.erases[i]) side.glow[i] = 1;
    if (side.trimmed && words[i * WORDS + 6] !== side.trimmed[i]) side.dots[i] = 1;
    if (side.at < 0 || !(side.glow[i] > 0 || side.dots[i] > 0)) continue;
    const [x, top] = place(i);
    if (side.glow[i] > 0) {
      context.globalAlpha = side.glow[i]; context.strokeStyle = colours.erased; context.lineWidth = 2;
      context.strokeRect(x, top, w, h);
    }
    if (side.dots[i] > 0) {
      context.globalAlpha = side.dots[i]; context.fillStyle = colours.trimmed; context.strokeStyle = colours.card; context.lineWidth = 1;
      context.beginPath(); context.arc(x + w / 2, top + h / 2, Math.max(2, Math.min(w, h) / 5), 0, 7); context.fill(); context.stroke();
    }
    context.globalAlpha = 1;
    if (!paused) { side.glow[i] = Math.max(0, side.glow[i] - fade); side.dots[i] = Math.max(0, side.dots[i] - fade); }
  }
  side.erases ??= new Uint32Array(count); side.trimmed ??= new Uint32Array(count);
  for (let i = 0; i < count; i++) { side.erases[i] = words[i * WORDS + 5]; side.trimmed[i] = words[i * WORDS + 6]; }
  side.totals = totals;
  const used = Math.round(100 * totals[0] / side.last.capacity_units);
  $('figures' + side.side).textContent = `${used} % in use, ${mib(totals[1])} stale`;
}
const mib = units => `${Math.round(units / 256).toLocaleString('en')} MiB`;

// The figures of a step: all from the last samples of both sides.
const ms = us => us === null ? 'none' : us < 1e4 ? `${(us / 1e3).toFixed(1)} ms` : us < 1e6 ? `${Math.round(us / 1e3)} ms` : `${(us / 1e6).toFixed(1)} s`;
const ROWS = {
  operations: ['Operations', s => s.operations.toLocaleString('en')],
  p99: ['99 % take at most', s => ms(s.p99_all_us)],
  worst: ['The slowest takes', s => ms(s.worst_us)],
  trims: ['TRIM commands', s => s.trims.toLocaleString('en')],
  wa: ['Write amplification', s => s.host_units ? (s.nand_units / s.host_units).toFixed(2) : 'none'],
  stale: ['Stale space', s => mib(s.stale_units)],
  queued: ['Waiting for TRIM', s => mib(s.queued_units)],
  reused: ['Reused before TRIM', s => mib(s.reused_units)],
};
const $numbers = document.createElement('table');
$numbers.className = 'numbers';
function numbers() {
  const step = document.querySelector('#steps [aria-current]'), samples = sides.map(side => side.samples.at(-1));
  if (!step || samples.some(sample => !sample)) { $numbers.hidden = true; return; }
  $numbers.hidden = false;
  const main = step.dataset.rows.split(' '), cell = (tag, text) => { const e = document.createElement(tag); e.textContent = text; return e; };
  const row = (tag, words) => { const r = document.createElement('tr'); words.forEach((word, i) => r.append(cell(i ? tag : 'th', word))); return r; };
  const head = document.createElement('thead'), body = document.createElement('tbody');
  head.append(row('th', [`After ${(Math.min(...samples.map(s => s.at_ms)) / 1000).toFixed(0)} s`, ...sides.map(() => '')]));
  for (const [i, name] of ['left', 'right'].entries()) {
    const line = document.createElement('b');
    line.className = `line ${name}`;
    head.rows[0].cells[i + 1].append(line, ' ' + name);
  }
  for (const id of [...main, ...Object.keys(ROWS).filter(id => !main.includes(id))]) {
    const [name, show] = ROWS[id], r = row('td', [name, ...samples.map(show)]);
    if (main.includes(id)) r.className = 'main';
    body.append(r);
  }
  $numbers.replaceChildren(head, body);
}

const WINDOW = 10;
// What is drawn of the samples, the unit, and whether the axis is logarithmic.
const CHARTS = {
  wa: { unit: 'flash writes per host write', lines: [(samples, i) => {
    const a = samples[Math.max(0, i - WINDOW)], b = samples[i];
    return b.host_units > a.host_units ? (b.nand_units - a.nand_units) / (b.host_units - a.host_units) : null; }] },
  latency: { unit: 'ms', log: true, lines: ['p50_us', 'p99_us'].map(key => (samples, i) => {
    const us = samples[i][key] ?? (samples[i].waiting_us > 5e5 ? samples[i].waiting_us : null);
    return us === null ? null : us / 1000; }) },
  stale: { unit: 'MiB', lines: [(samples, i) => samples[i].stale_units / 256] },
};
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map(m => m * power).find(step => step >= value);
}
/** Ticks of an axis from its bottom to its top, and where a value lies between them. */
function scale(log, values) {
  if (!log) {
    const top = nice(Math.max(...values));
    const parts = /^5/.test(top.toExponential()) ? 5 : 4;
    return [Array.from({ length: parts + 1 }, (_, i) => top * i / parts), v => v / top];
  }
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  return [Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)), v => (Math.log10(v) - low) / (high - low)];
}
function charts() {
  const most = Math.max(20000, ...sides.map(side => side.samples.at(-1)?.at_ms ?? 0)), from = Math.max(0, most - 120000);
  let said = '';
  for (const [id, { unit, log, lines }] of Object.entries(CHARTS)) {
    const [context, width, height] = fit($(id)), left = 44, bottom = height - 34, head = 22, right = width - 10;
    const points = sides.map(side => lines.map(line => side.samples.map((s, i) => s.at_ms < from ? null : [s.at_ms, line(side.samples, i)]).filter(p => p && p[1] !== null)));
    const values = points.flat(2).map(p => p[1]).filter(v => !log || v > 0);
    const [ticks, part] = scale(log, values.concat(log ? [1, 10] : id === 'wa' ? [2] : [1]));
    const x = t => left + (t - from) / (most - from) * (right - left), y = v => bottom - Math.max(0, part(v)) * (bottom - head);
    context.font = '12px system-ui, sans-serif'; context.lineWidth = 1; context.fillStyle = colours.soft; context.strokeStyle = colours.rule;
    context.textAlign = 'left'; context.fillText(unit, 2, 11);
    context.textAlign = 'right';
    for (const v of ticks) {
      context.beginPath(); context.moveTo(left, y(v)); context.lineTo(right, y(v)); context.stroke();
      context.fillText(v >= 1e4 ? `${v / 1e3}k` : String(Number(v.toPrecision(3))), left - 6, y(v) + 4);
    }
    context.textAlign = 'center';
    const tick = nice((most - from) / 4);
    for (let t = Math.ceil(from / tick) * tick; t <= most; t += tick) context.fillText(t / 1000, x(t), bottom + 15);
    context.fillText('virtual time, s', (left + right) / 2, height - 4);
    // The left one is a wide band below the right one, so that both are seen where they lie on each other.
    context.lineJoin = 'round';
    points.forEach((kinds, side) => kinds.forEach((line, kind) => {
      context.strokeStyle = side ? colours.right : colours.left; context.lineWidth = (side ? 1.6 : 5) * (kind ? .7 : 1);
      context.globalAlpha = side ? 1 : .6; context.setLineDash(kind ? [6, 4] : []); context.beginPath();
      line.forEach(([t, v], i) => i ? context.lineTo(x(t), y(v)) : context.moveTo(x(t), y(v)));
      context.stroke(); context.setLineDash([]); context.globalAlpha = 1;
    }));
    if (hovered?.id !== id) continue;
    const t = from + (Math.min(hovered.x, right) - left) / (right - left) * (most - from);
    context.strokeStyle = colours.ink; context.beginPath(); context.moveTo(x(t), head); context.lineTo(x(t), bottom); context.stroke();
    said = `${(t / 1000).toFixed(1)} s: ` + points.map((kinds, side) => `${sides[side].policy} ` + kinds.map(line => {
      const best = line.reduce((a, b) => !a || Math.abs(b[0] - t) < Math.abs(a[0] - t) ? b : a, null);
      return best ? best[1].toFixed(2) : 'none'; }).join(' and ')).join(', ') + ` ${unit}`;
  }
  $('hover').textContent = said || 'Point at a chart to read its values.';
}

async function start() {
  if (typeof WebAssembly !== 'object') throw new Error('this browser has no WebAssembly, or it is turned off');
  if (typeof DecompressionStream !== 'function') throw new Error('this browser cannot unpack the model: it is older than 2023');
  const packed = new Blob([Uint8Array.from(atob(TRIMWISE_WASM_GZ), c => c.charCodeAt(0))]);
  const bytes = await new Response(packed.stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
  wasm = (await WebAssembly.instantiate(bytes, {})).instance.exports;
  catalogue = JSON.parse(output(wasm.trimwise_catalogue()));
  settings = { ...catalogue.defaults };
  const fill = (id, entries) => entries.forEach(([value, text]) => $(id).add(new Option(text, value)));
  for (const id of ['left', 'right']) fill(id, catalogue.policies.map(p => [p.policy, p.policy + (p.bound ? ' (a bound)' : '')]));
  fill('workload', catalogue.workloads); fill('drive', catalogue.drives.map(([name]) => [name, name]));
  for (const [id, limits] of [['fullness_percent', catalogue.fullness], ['over_provisioning_percent', catalogue.over_provisioning], ['rate_mib_per_s', catalogue.rate]])
    Object.assign($(id), { min: limits.least, max: limits.most });
  $('seed').value = settings.seed;
  for (const id of ['drives', 'charts', 'controls', 'run']) $(id).hidden = false;
  $('still').hidden = true; root.classList.add('live');
  $('controls').onsubmit = event => event.preventDefault();
  $('controls').addEventListener('input', event => { if (event.target.type === 'range') document.querySelector(`output[for=${event.target.id}]`).textContent = event.target.value; });
  $('controls').addEventListener('change', () => { read(); restart(); });
  $('speed').onchange = () => { speed = Number($('speed').value); };
  const pause = on => { paused = on; owed = 0; $('pause').textContent = on ? 'Continue' : 'Pause'; dirty = true; };
  $('pause').onclick = () => pause(!paused);
  $('step').onclick = () => { if (!sides || behind() < 0) return; pause(true); target = behind() + STEP_MS; owed = STEP_MS; };
  $('restart').onclick = restart;
  const steps = [...$('steps').children];
  steps.forEach((step, i) => {
    const button = (text, act) => { const b = document.createElement('button'); b.type = 'button'; b.textContent = text; b.onclick = act; return b; };
    const heading = step.querySelector('h3');
    heading.replaceChildren(button(heading.textContent, () => choose(step)));
    const onward = document.createElement('div');
    onward.className = 'onward';
    const { then, thenText } = step.dataset;
    if (then) onward.append(button(thenText, () => choose(step, JSON.parse(then))));
    if (steps[i + 1]) onward.append(button('Next step', () => { choose(steps[i + 1]); steps[i + 1].scrollIntoView({ block: 'nearest' }); }));
    step.querySelector('div').append(onward);
  });
  for (const id of Object.keys(CHARTS)) {
    $(id).onpointermove = event => { hovered = { id, x: Math.max(44, event.offsetX) }; dirty = true; };
    $(id).onpointerleave = () => { hovered = null; dirty = true; };
  }
  addEventListener('resize', () => { dirty = true; });
  choose(steps[0]);
  requestAnimationFrame(frame);
}
// For the page's test.
globalThis.trimwise = { frames, speed: () => speed, state: () => sides && sides.map(s => ({ policy: s.policy, at: s.at, totals: s.totals, samples: s.samples, settings: { ...settings }, prepared: s.last?.prepared_percent })) };
start().catch(error => fail(`The model cannot run: ${error.message}. The story and a drawing can be read without it.`));
})();
