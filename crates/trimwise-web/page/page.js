'use strict';
(() => {
const $ = id => document.getElementById(id);
const root = document.documentElement, status = $('status');
const system = matchMedia('(prefers-color-scheme: dark)'), still = matchMedia('(prefers-reduced-motion: reduce)');
let colours = {};
function theme() {
  root.dataset.theme = $('theme').value || (system.matches ? 'dark' : 'light');
  const style = getComputedStyle(root);
  for (const name of ['card', 'ink', 'soft', 'rule', 'valid', 'stale', 'invalid', 'free', 'erased', 'trimmed', 'left', 'right'])
    colours[name] = style.getPropertyValue('--' + name).trim();
  dirty = true;
}
let dirty = true, wasm, catalogue, sides, settings, speed = 1, paused = false, target = 0, last = 0, hovered = null;
const decoder = new TextDecoder(), encoder = new TextEncoder();
const output = bytes => decoder.decode(new Uint8Array(wasm.memory.buffer, wasm.trimwise_output(), bytes));
function fail(text) { status.textContent = text; status.className = 'bad'; }

$('theme').onchange = theme; system.onchange = theme; theme();

function open(side, policy) {
  const text = encoder.encode(JSON.stringify({ ...settings, policy }));
  new Uint8Array(wasm.memory.buffer, wasm.trimwise_input(text.length), text.length).set(text);
  const bad = wasm.trimwise_open(side);
  if (bad) throw new Error(output(bad));
  return { side, policy, at: -1, now: 0, samples: [], erases: null, trimmed: null, glow: null, dots: null };
}
function restart() {
  status.className = '';
  sides = null; target = 0; dirty = true;
  try { sides = [open(0, $('left').value), open(1, $('right').value)]; } catch (e) { return fail(String(e.message)); }
  for (const side of [0, 1]) $('name' + side).textContent = sides[side].policy;
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
function choose(step) {
  const { left, right, ...rest } = JSON.parse(step.dataset.set);
  $('left').value = left; $('right').value = right;
  for (const [id, value] of Object.entries(rest)) $(id).value = value;
  for (const other of $('steps').children) other.removeAttribute('aria-current');
  step.setAttribute('aria-current', 'step');
  read(); restart();
}

// The budget of a frame bounds how much is computed in it; virtual time alone decides what is computed.
const BUDGET_MS = 8, SLICE_MS = 10;
const frames = [];
function simulate(begin) {
  const preparing = sides.some(side => side.at === -1);
  while (performance.now() - begin < BUDGET_MS) {
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
function frame(now) {
  requestAnimationFrame(frame);
  const elapsed = Math.min(100, now - last); last = now;
  if (!sides || (paused && !dirty)) return;
  const begin = performance.now();
  if (!paused) {
    if (sides.every(side => side.at >= 0)) {
      const least = Math.min(...sides.map(side => side.at));
      target = Math.min(target + elapsed * speed, least + 250 * speed);
    }
    simulate(begin);
    if (!sides) return;
  }
  const simulated = performance.now();
  for (const side of sides) { side.last = report(side); blocks(side); }
  if (sides.every(side => side.at >= 0)) {
    status.textContent = `${(Math.min(...sides.map(s => s.at)) / 1000).toFixed(1)} s of virtual time${paused ? ', paused' : ''}`;
  } else status.textContent = `Preparing both drives: filled once, then deleted to ${settings.fullness_percent} % (${(sides[0].last.now_ms / 1000).toFixed(0)} s)`;
  charts();
  dirty = false;
  frames.push([simulated - begin, performance.now() - simulated]);
  if (frames.length > 600) frames.shift();
}

function fit(canvas) {
  const ratio = Math.min(2, devicePixelRatio || 1), width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, canvas.clientWidth, canvas.clientHeight];
}
const WORDS = 7;
function blocks(side) {
  const bytes = wasm.trimwise_blocks(side.side);
  const words = new Uint32Array(wasm.memory.buffer.slice(wasm.trimwise_output(), wasm.trimwise_output() + bytes));
  const count = words.length / WORDS, size = side.last.superblock_units;
  if (!side.glow) { side.glow = new Float32Array(count); side.dots = new Float32Array(count); }
  const [context, width, height] = fit($('blocks' + side.side));
  let columns = Math.max(1, Math.round(Math.sqrt(count * width / height)));
  const cell = width / columns, rows = Math.ceil(count / columns), tall = height / rows;
  const totals = [0, 0, 0, 0], fade = still.matches ? 1 : .05;
  for (let i = 0; i < count; i++) {
    const at = i * WORDS, x = (i % columns) * cell + 1, top = Math.floor(i / columns) * tall + 1, w = cell - 2, h = tall - 2;
    let y = top + h;
    [colours.valid, colours.stale, colours.invalid, colours.free].forEach((colour, kind) => {
      const units = words[at + kind], part = units / size * h;
      totals[kind] += units;
      if (!units) return;
      context.fillStyle = colour; context.fillRect(x, y - part, w, part); y -= part;
    });
    if (side.erases && words[at + 5] !== side.erases[i]) side.glow[i] = 1;
    if (side.trimmed && words[at + 6] !== side.trimmed[i]) side.dots[i] = 1;
    if (side.glow[i] > 0 && side.at >= 0) {
      context.globalAlpha = side.glow[i]; context.strokeStyle = colours.erased; context.lineWidth = 2;
      context.strokeRect(x, top, w, h); context.globalAlpha = 1;
    }
    if (side.dots[i] > 0 && side.at >= 0) {
      context.globalAlpha = side.dots[i]; context.fillStyle = colours.trimmed; context.beginPath();
      context.arc(x + w / 2, top + h / 2, Math.min(w, h) / 5, 0, 7); context.fill(); context.globalAlpha = 1;
    }
    if (!paused) { side.glow[i] = Math.max(0, side.glow[i] - fade); side.dots[i] = Math.max(0, side.dots[i] - fade); }
  }
  side.erases ??= new Uint32Array(count); side.trimmed ??= new Uint32Array(count);
  for (let i = 0; i < count; i++) { side.erases[i] = words[i * WORDS + 5]; side.trimmed[i] = words[i * WORDS + 6]; }
  side.totals = totals;
  const sample = side.samples.at(-1), mib = units => Math.round(units / 256).toLocaleString('en');
  $('figures' + side.side).textContent = `${mib(totals[0])} MiB valid, ${mib(totals[1])} stale, ${mib(totals[2])} invalid, ${mib(totals[3])} free` +
    (sample ? `; ${sample.trims.toLocaleString('en')} TRIMs, ${sample.operations.toLocaleString('en')} operations` : '');
}

const WINDOW = 10;
const CHARTS = {
  wa: [(samples, i) => {
    const a = samples[Math.max(0, i - WINDOW)], b = samples[i];
    return b.host_units > a.host_units ? (b.nand_units - a.nand_units) / (b.host_units - a.host_units) : null; }],
  latency: [(samples, i) => samples[i].p50_us === null ? null : samples[i].p50_us / 1000, (samples, i) => samples[i].p99_us === null ? null : samples[i].p99_us / 1000],
  stale: [(samples, i) => samples[i].stale_units / 256],
};
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map(m => m * power).find(step => step >= value);
}
function charts() {
  const most = Math.max(20000, ...sides.map(side => side.samples.at(-1)?.at_ms ?? 0)), from = Math.max(0, most - 120000);
  for (const [id, lines] of Object.entries(CHARTS)) {
    const [context, width, height] = fit($(id)), left = 46, bottom = height - 34, right = width - 8;
    const points = sides.map(side => lines.map(line => side.samples.map((s, i) => s.at_ms < from ? null : [s.at_ms, line(side.samples, i)]).filter(p => p && p[1] !== null)));
    const top = nice(Math.max(id === 'wa' ? 1.5 : 0.1, ...points.flat(2).map(p => p[1])));
    const x = ms => left + (ms - from) / (most - from) * (right - left), y = v => bottom - v / top * (bottom - 8);
    context.font = '12px system-ui, sans-serif'; context.lineWidth = 1; context.fillStyle = colours.soft; context.strokeStyle = colours.rule;
    context.textAlign = 'right';
    for (let i = 0; i <= 4; i++) {
      const v = top * i / 4;
      context.beginPath(); context.moveTo(left, y(v)); context.lineTo(right, y(v)); context.stroke();
      context.fillText(String(Number(v.toPrecision(3))), left - 6, y(v) + 4);
    }
    context.textAlign = 'center';
    const tick = nice((most - from) / 5);
    for (let t = Math.ceil(from / tick) * tick; t <= most; t += tick) context.fillText(t / 1000, x(t), bottom + 15);
    context.fillText('virtual time, s', (left + right) / 2, height - 4);
    points.forEach((kinds, side) => kinds.forEach((line, kind) => {
      context.strokeStyle = side ? colours.right : colours.left; context.lineWidth = side ? 1.6 : 2.6;
      context.setLineDash(kind ? [2, 3] : []); context.beginPath();
      line.forEach(([t, v], i) => i ? context.lineTo(x(t), y(v)) : context.moveTo(x(t), y(v)));
      context.stroke(); context.setLineDash([]);
    }));
    if (hovered?.id === id) {
      const t = from + (hovered.x - left) / (right - left) * (most - from);
      context.strokeStyle = colours.ink; context.lineWidth = 1; context.beginPath(); context.moveTo(hovered.x, 8); context.lineTo(hovered.x, bottom); context.stroke();
      const texts = points.map((kinds, side) => `${sides[side].policy}: ` + kinds.map(line => {
        const best = line.reduce((a, b) => !a || Math.abs(b[0] - t) < Math.abs(a[0] - t) ? b : a, null);
        return best ? best[1].toFixed(2) : 'none'; }).join(' and '));
      $('hover').textContent = `At ${(t / 1000).toFixed(1)} s, ${texts.join('; ')} ${{ wa: '', latency: 'ms (median and 99th percentile)', stale: 'MiB' }[id]}`;
    }
  }
}

async function start() {
  if (typeof WebAssembly !== 'object') throw new Error('this browser has no WebAssembly, or it is turned off');
  const bytes = Uint8Array.from(atob(TRIMWISE_WASM), c => c.charCodeAt(0));
  wasm = (await WebAssembly.instantiate(bytes, {})).instance.exports;
  catalogue = JSON.parse(output(wasm.trimwise_catalogue()));
  settings = { ...catalogue.defaults };
  const fill = (id, entries) => entries.forEach(([value, text]) => $(id).add(new Option(text, value)));
  for (const id of ['left', 'right']) fill(id, catalogue.policies.map(p => [p.policy, p.policy + (p.bound ? ' (a bound)' : '')]));
  fill('workload', catalogue.workloads); fill('drive', catalogue.drives.map(([name]) => [name, name]));
  for (const [id, limits] of [['fullness_percent', catalogue.fullness], ['over_provisioning_percent', catalogue.over_provisioning], ['rate_mib_per_s', catalogue.rate]])
    Object.assign($(id), { min: limits.least, max: limits.most });
  $('seed').value = settings.seed;
  $('controls').hidden = $('live').hidden = false;
  $('controls').onsubmit = event => event.preventDefault();
  $('controls').addEventListener('input', event => { if (event.target.type === 'range') document.querySelector(`output[for=${event.target.id}]`).textContent = event.target.value; });
  $('controls').addEventListener('change', event => { if (event.target.id === 'speed') speed = Number(event.target.value); else { read(); restart(); } });
  $('pause').onclick = () => { paused = !paused; $('pause').textContent = paused ? 'Continue' : 'Pause'; dirty = true; };
  $('restart').onclick = restart;
  for (const step of $('steps').children) {
    const button = document.createElement('button');
    button.type = 'button'; button.textContent = 'Show'; button.setAttribute('aria-label', 'Show: ' + step.querySelector('h3').textContent);
    button.onclick = () => choose(step); step.append(button);
  }
  for (const id of Object.keys(CHARTS)) {
    $(id).onpointermove = event => { hovered = { id, x: Math.max(46, event.offsetX) }; dirty = true; };
    $(id).onpointerleave = () => { hovered = null; dirty = true; $('hover').textContent = 'Point at a chart to read its values.'; };
  }
  addEventListener('resize', () => { dirty = true; });
  choose($('steps').children[1]);
  requestAnimationFrame(frame);
}
// For the page's test.
globalThis.trimwise = { frames, state: () => sides && sides.map(s => ({ policy: s.policy, at: s.at, totals: s.totals, samples: s.samples })) };
start().catch(error => fail(`The model cannot run: ${error.message}. The story can be read without it.`));
})();
