// Draws the charts of the report: each figure has its data as JSON, and its title and caption as text.
// Charts are drawn at the width that they get, so that their text has the same size on a phone and on paper.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const DASHES = ["", "8 4", "2 3", "10 3 2 3", "5 2", "14 4", "1 4", "8 2 1 2 1 2"];
  const MARKERS = [
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z", // circle
    "M-3.5,-3.5H3.5V3.5H-3.5Z", // square
    "M0,-4.6L4.4,3.4H-4.4Z", // triangle
    "M0,-5L5,0L0,5L-5,0Z", // diamond
    "M0,4.6L4.4,-3.4H-4.4Z", // triangle, down
    "M-4.5,-1.5H-1.5V-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5Z", // plus
    "M0,-5L1.4,-1.5L5,-1.5L2.2,0.8L3.2,4.4L0,2.2L-3.2,4.4L-2.2,0.8L-5,-1.5L-1.4,-1.5Z", // star
    "M-4.5,-3H4.5V3H-4.5Z", // flat
  ];
  // Fills that have a pattern besides their colour, so that they can be told apart without it.
  const PATTERNS = {
    "program-gc": "M-1,7L7,-1M-1,1L1,-1M5,7L7,5", "read-gc": "M-1,-1L7,7M-1,5L1,7M5,-1L7,1",
    "trim": "M1.5,1.5h1.6v1.6h-1.6ZM4.5,4.5h1.6v1.6h-1.6Z", "erase": "M0,3H6M3,0V6",
    "flush": "M3,0V6", "stale": "M-1,7L7,-1M-1,1L1,-1M5,7L7,5",
  };
  const TURNS = "12 12";
  const PAPER = 690; // px between the margins of an A4 page
  const LINE = 16;
  let count = 0, printing = false;

  const pen = document.createElement("canvas").getContext("2d");
  const wide = text => { pen.font = "12.5px system-ui, sans-serif"; return pen.measureText(text).width; };

  // No control characters, nor those that change the direction of text.
  const printable = (_, value) => typeof value === "string" ? value.replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, "\ufffd") : value;

  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent?.append(element);
    return element;
  };
  const html = (name, attributes, parent, text) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent?.append(element);
    return element;
  };

  // Numbers ------------------------------------------------------------------------------------------------------

  const number = value => {
    const size = Math.abs(value);
    if (size !== 0 && size < 0.001) return String(Number(value.toPrecision(3)));
    const digits = size >= 999.5 || size === 0 ? 0 : size >= 99.95 ? 1 : size >= 9.995 ? 2 : 3;
    return value.toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", "\u2212");
  };
  const STEPS = { ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
    B: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]] };
  const scaled = (value, steps) => {
    const [factor, unit] = steps.find(([factor]) => Math.abs(value) >= factor) ?? steps[steps.length - 1];
    return `${number(value / factor)} ${unit}`;
  };
  // A value with its unit, as the tooltip shows it.
  const full = (value, axis) => {
    if (value === 0) return `0 ${axis.unit === "ns" ? "s" : axis.unit}`.trim();
    if (STEPS[axis.unit]) return scaled(value, STEPS[axis.unit]);
    if (axis.unit === "s" && Math.abs(value) < 1) return scaled(value * 1e9, STEPS.ns);
    return `${number(value)} ${axis.unit}`.trim();
  };
  // The unit of an axis's ticks, and what a value is divided by.
  const unitOf = (axis, high) => {
    if (axis.unit === "ns") return axis.log ? (high >= 1e6 ? [1e6, "ms"] : [1e3, "µs"]) :
      STEPS.ns.find(([factor]) => high >= factor) ?? [1, "ns"];
    if (axis.unit === "s" && !axis.log && high < 0.1) {
      const [factor, unit] = STEPS.ns.find(([factor]) => high * 1e9 >= factor) ?? [1, "ns"];
      return [factor / 1e9, unit];
    }
    if (axis.unit === "B" && !axis.log) return STEPS.B.find(([factor]) => high >= factor) ?? [1, "B"];
    return [1, axis.unit];
  };
  const named = (axis, unit) => {
    const words = unit === "B" && axis.log ? "bytes" : unit;
    return axis.label + (words ? `, ${words}` : "") + (axis.log ? " (logarithmic)" : "");
  };

  // Axes ---------------------------------------------------------------------------------------------------------

  const linearTicks = (low, high, most) => {
    const raw = (high - low) / Math.max(most, 2);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step || 0); // no -0
    return ticks;
  };
  const logTicks = (low, high, most, base) => {
    const from = Math.log(low) / Math.log(base), to = Math.log(high) / Math.log(base);
    for (const parts of base === 10 ? [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]] : [[1]]) {
      for (let every = 1; every <= (parts.length > 1 ? 1 : 40); every++) {
        const ticks = [];
        for (let power = Math.floor(from); power <= to; power++) {
          if (power % every === 0) for (const part of parts) ticks.push(part * base ** power);
        }
        const inside = ticks.filter(tick => tick >= low * 0.9999 && tick <= high * 1.0001);
        if (inside.length <= most && inside.length >= 2) return inside;
      }
    }
    return linearTicks(low, high, most).filter(tick => tick > 0);
  };
  // The range of an axis over these values, and where a value lies in it from 0 to 1.
  const scale = (axis, values, fromZero) => {
    const usable = values.filter(v => Number.isFinite(v) && (!axis.log || v > 0));
    let low = Math.min(...usable), high = Math.max(...usable);
    if (!usable.length) [low, high] = [1, 2];
    if (axis.log) {
      if (high / low < 1.5) [low, high] = [low / 1.5, high * 1.5];
      const room = (high / low) ** 0.03;
      [low, high] = [low / room, high * room];
    } else {
      if (fromZero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
      if (low === high) high = low + (Math.abs(low) || 1);
      const room = (high - low) * 0.05;
      high += high === 0 ? 0 : room;
      if (low !== 0) low -= room;
    }
    const place = axis.log ? v => Math.log(v / low) / Math.log(high / low) : v => (v - low) / (high - low);
    const [factor, unit] = unitOf(axis, high);
    // As many digits as ticks of this range can have.
    const digits = Math.min(Math.max(2 - Math.floor(Math.log10(Math.max(high, -low) / factor)), 0), 12);
    const fixed = v => (v / factor).toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", "\u2212");
    const tick = !axis.log ? fixed : axis.unit === "B" ? v => scaled(v, STEPS.B) : v => number(v / factor);
    return {
      low, high, place, tick, name: named(axis, unit),
      ticks: most => axis.log ? logTicks(low, high, most, axis.unit === "B" ? 2 : 10) :
        linearTicks(low / factor, high / factor, most).map(v => v * factor),
    };
  };

  // Text that is broken into lines of at most `room` px.
  const broken = (text, room) => {
    const lines = [];
    for (const word of text.split(" ")) {
      const last = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
      if (lines.length && wide(last) <= room) lines[lines.length - 1] = last;
      else lines.push(word);
    }
    return lines;
  };
  const paragraph = (text, x, y, room, parent, attributes = {}) => {
    const lines = broken(text, room);
    lines.forEach((line, i) => make("text", { x, y: y + i * LINE, ...attributes }, parent, line));
    return lines.length * LINE;
  };
  // Ticks and their labels below an area; labels that would touch the one before are left out, but not their ticks.
  const below = (axis, box, parent, width) => {
    let end = -Infinity;
    const ticks = axis.ticks(Math.max(2, Math.floor(box.width / 70)));
    for (const value of ticks) {
      const x = box.left + axis.place(value) * box.width;
      make("path", { class: "grid", d: `M${x},${box.top}V${box.top + box.height}` }, parent);
      const label = axis.tick(value), half = wide(label) / 2;
      const middle = Math.min(Math.max(x, half + 1), width - half - 1);
      if (middle - half < end + 6) continue;
      make("text", { class: "tick tick-x", x: middle, y: box.top + box.height + 16, "text-anchor": "middle" }, parent, label);
      end = middle + half;
    }
  };

  // What is drawn with ------------------------------------------------------------------------------------------

  const coloured = style => `color:var(--p${style.colour})`;
  const filled = (fill, svg) => {
    if (!PATTERNS[fill]) return `var(--f-${fill})`;
    const id = `hatch${count}-${fill}`;
    if (!svg.querySelector(`#${id}`)) {
      const pattern = make("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg);
      make("rect", { width: 6, height: 6, style: `fill:var(--f-${fill})` }, pattern);
      make("path", { d: PATTERNS[fill], style: "stroke:var(--hatch);fill:none;stroke-width:1.2" }, pattern);
    }
    return `url(#${id})`;
  };
  const marker = (style, x, y, parent) => make("path", {
    d: MARKERS[style.marker], transform: `translate(${x},${y})`, class: style.hollow ? "marker hollow" : "marker",
    style: coloured(style),
  }, parent);

  const legendEntry = (list, name, draw) => {
    const item = html("li", {}, list);
    const svg = make("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" }, item);
    draw(svg);
    item.append(name);
  };
  const lineSwatch = style => svg => {
    make("path", { d: "M1,7H33", class: "line", "stroke-dasharray": DASHES[style.dash], style: coloured(style) }, svg);
    marker(style, 17, 7, svg);
  };
  const plainSwatch = svg => { make("path", { d: "M1,7H33", class: "line" }, svg); };
  const fillSwatch = fill => svg => {
    count += 1;
    make("rect", { x: 8, y: 1, width: 18, height: 12, class: "part swatch", style: `fill:${filled(fill, svg)}` }, svg);
  };
  const dotSwatch = style => svg => { marker(style, 17, 7, svg); };
  const once = (items, key) => items.filter((item, i) => items.findIndex(other => key(other) === key(item)) === i);

  // Kinds of charts ---------------------------------------------------------------------------------------------

  const listed = names => names.length < 2 ? names.join() : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
  // A point without a value is a gap: nothing was measured there, so no line crosses it.
  const isKnown = point => point[1] !== null;
  // Stretches of points without a gap.
  const stretches = points => points.reduce((all, p) => {
    if (isKnown(p)) all[all.length - 1].push(p);
    else all.push([]);
    return all;
  }, [[]]).filter(stretch => stretch.length);
  // Sentences about lines that lie on each other; and of those that do so everywhere, by name, which of how many it is.
  const coinciding = (series, x, y, width, height) => {
    const shown = series.map(s => ({ name: s.name, points: s.points.filter(isKnown) })).filter(s => s.points.length);
    const groups = [], partly = [];
    // Points of both at the same x, and those of them that cannot be told apart.
    const shared = (a, b) => a.points.flatMap(p => b.points.filter(q => q[0] === p[0])
      .map(q => Math.abs(y.place(p[1]) - y.place(q[1])) * height < 1.5));
    const places = s => s.points.map(p => [x.place(p[0]) * width, y.place(p[1]) * height]);
    const same = (a, b) => a.length === b.length && a.every((p, i) => Math.hypot(p[0] - b[i][0], p[1] - b[i][1]) < 1.5);
    for (const s of shown) {
      const own = places(s), group = groups.find(g => same(g.places, own));
      if (group) group.names.push(s.name);
      else groups.push({ places: own, names: [s.name], first: s });
    }
    const alike = groups.map(g => g.names).filter(names => names.length > 1).map(names =>
      `${names.length > 2 && names.length === series.length ? "All lines" : listed(names)} coincide.`);
    groups.forEach((a, i) => groups.slice(i + 1).forEach(b => {
      const both = shared(a.first, b.first), hidden = both.filter(Boolean).length;
      if (hidden > 1 && 2 * hidden >= both.length) partly.push(`${a.names[0]} and ${b.names[0]}`);
    }));
    if (partly.length) alike.push(`In part coincide: ${partly.slice(0, 3).join("; ")}${partly.length > 3 ? "; and others" : ""}.`);
    const shares = new Map(groups.flatMap(g => g.names.map((name, i) => [name, [i, g.names.length]])));
    return [alike, shares];
  };
  const lines = (data, frame) => {
    const all = data.every.flatMap(panel => panel.series);
    const areas = data.every.flatMap(panel => panel.areas), bands = data.every.flatMap(panel => panel.bands);
    const names = once(all, s => s.name);
    // A line of the same name in each panel has the colour of its panel.
    const same = names.length === 1 && data.every.length > 1;
    // A line that is alone needs no dashes.
    if (names.length === 1) all.forEach(s => { s.style.dash = 0; });
    names.forEach(s => legendEntry(frame.legend, s.name, same ? plainSwatch : lineSwatch(s.style)));
    once(areas, a => a.name).forEach(a => legendEntry(frame.legend, a.name, fillSwatch(a.fill)));
    once(bands, b => b.name).forEach(b => legendEntry(frame.legend, b.name, fillSwatch(b.fill)));
    const points = all.flatMap(s => s.points).filter(isKnown);
    const x = scale(data.x, points.map(p => p[0]).concat(areas.flatMap(a => a.points.map(p => p[0])),
      bands.flatMap(b => b.spans.flatMap(span => span.slice(0, 2)))),
      data.x.unit === "s" || data.x.unit === "d");
    const y = scale(data.y, points.flatMap(p => [p[1], ...(p[2] ?? [])]).concat(areas.flatMap(a => a.points.map(p => p[1]))),
      true);
    const columns = data.every.length > 1 && frame.width >= 640 ? 2 : 1;
    const gap = 24, each = (frame.width - gap * (columns - 1)) / columns;
    const height = (data.every.length > 1 ? 180 : 280) * (printing ? 0.75 : 1);
    const ticks = y.ticks(Math.floor(height / 32));
    const left = Math.ceil(Math.max(...ticks.map(v => wide(y.tick(v))))) + 10;
    let row = 0;
    for (let i = 0; i < data.panels.length; i += columns) {
      let deepest = 0;
      data.panels.slice(i, i + columns).forEach((panel, column) => {
        const corner = column * (each + gap);
        const group = make("g", { transform: `translate(${corner},${row})` }, frame.svg);
        const titled = name => panel.title ? `${panel.title}: ${name}` : name;
        let top = 14;
        if (panel.title) top += paragraph(panel.title, 0, top, each, group, { class: "panel" });
        top += paragraph(y.name, 0, top, each, group, { class: "axis axis-y" }) - 4;
        const [sentences, shares] = coinciding(panel.series, x, y, each, height);
        for (const sentence of sentences) {
          top += paragraph(sentence, 0, top + 4, each, group, { class: "coinciding" });
        }
        const box = { left, top, width: each - left - 8, height };
        const px = v => box.left + x.place(v) * box.width, py = v => box.top + (1 - y.place(v)) * box.height;
        const floor = py(data.y.log ? y.low : Math.max(0, y.low));
        for (const band of panel.bands) {
          for (const [from, to, strength, words] of band.spans) {
            make("rect", { class: "band", x: px(from), y: box.top, width: Math.max(px(to) - px(from), 1), height: box.height,
              style: `fill:${filled(band.fill, frame.svg)};opacity:${(0.15 + 0.75 * strength).toFixed(2)}` }, group);
            frame.mark({ x: corner + (px(from) + px(to)) / 2, y: row + box.top + 8, title: titled(band.name),
              words: [words, `${full(from, data.x)} to ${full(to, data.x)}`] });
          }
        }
        below(x, box, group, each);
        for (const value of ticks) {
          make("path", { class: "grid", d: `M${box.left},${py(value)}H${box.left + box.width}` }, group);
          make("text", { class: "tick tick-y", x: box.left - 6, y: py(value) + 4, "text-anchor": "end" }, group, y.tick(value));
        }
        for (const area of panel.areas) {
          const d = area.points.map(p => `${px(p[0])},${py(p[1])}`).join("L");
          const [first, last] = [area.points[0], area.points[area.points.length - 1]];
          if (!first) continue;
          make("path", { class: "area", d: `M${px(first[0])},${floor}L${d}L${px(last[0])},${floor}Z`,
            style: `fill:${filled(area.fill, frame.svg)}` }, group);
          area.points.forEach(p => frame.mark({ x: corner + px(p[0]), y: row + py(p[1]), title: titled(area.name),
            words: [`${data.y.label} ${full(p[1], data.y)}`, `${data.x.label} ${full(p[0], data.x)}`] }));
        }
        // Whole lines first: they show through the gaps of dashed ones that lie on them.
        const series = [...panel.series].sort((a, b) => (a.style.dash > 0) - (b.style.dash > 0));
        series.forEach((s, number) => {
          const known = s.points.filter(isKnown);
          const d = stretches(s.points).map(points => `M${points.map(p => `${px(p[0])},${py(p[1])}`).join("L")}`).join("");
          if (panel.areas.length) make("path", { class: "halo", d }, group);
          // Lines that coincide take turns with their markers, and a whole one on another shows that through gaps.
          const [turn, of] = shares.get(s.name) ?? [0, 1];
          const dashes = turn > 0 && s.style.dash === 0 ? TURNS : DASHES[s.style.dash];
          if (known.length > 1) make("path", { class: "line", d, "stroke-dasharray": dashes, "data-name": s.name,
            style: coloured(s.style) }, group);
          const every = Math.max(1, Math.ceil(known.length / 12)) * of;
          const alone = stretches(s.points).filter(points => points.length === 1).flat();
          known.forEach((p, at) => {
            if (p[2]) make("path", { class: "whisker", d: `M${px(p[0])},${py(p[2][0])}V${py(p[2][1])}`,
              style: coloured(s.style) }, group);
            // Lines of many points have markers at different ones.
            const marked = of > 1 ? turn * every / of : every > 1 ? number * 3 % every : 0;
            if (at % every === marked || alone.includes(p)) marker(s.style, px(p[0]), py(p[1]), group);
            const range = p[2] ? [`from ${full(p[2][0], data.y)} to ${full(p[2][1], data.y)}`] : [];
            frame.mark({ x: corner + px(p[0]), y: row + py(p[1]), title: titled(s.name),
              words: [`${data.y.label} ${full(p[1], data.y)}`, ...range, `${data.x.label} ${full(p[0], data.x)}`] });
          });
        });
        const foot = box.top + box.height + 34;
        const used = paragraph(x.name, box.left + box.width / 2, foot, box.width, group,
          { class: "axis axis-x", "text-anchor": "middle" });
        deepest = Math.max(deepest, foot + used);
      });
      row += deepest + 8;
    }
    return row;
  };

  // Rows with a name above each: long names have room, on any screen.
  const rows = (data, frame, values, each, draw) => {
    const x = scale(data.x, values, !data.x.log && data.start?.bound === undefined);
    const figure = Math.max(...data.every.map(row => wide(row.figure))) + 10;
    const box = { left: 4, top: 4, width: frame.width - figure - 8, height: data.rows.length * each + 4 };
    const names = paragraph(data.y.label || "", 0, 14, frame.width, frame.svg, { class: "axis axis-y" });
    box.top += data.y.label ? names + 2 : 0;
    const px = v => box.left + x.place(v) * box.width;
    below(x, box, frame.svg, frame.width);
    data.rows.forEach((row, i) => {
      const top = box.top + i * each;
      make("text", { class: "name", x: box.left + 3, y: top + 14 }, frame.svg, row.name);
      const end = draw(row, top + 19, px);
      make("text", { class: "figure", x: Math.min(end + 7, frame.width - wide(row.figure)), y: top + 32 }, frame.svg, row.figure);
    });
    const foot = box.top + box.height + 34;
    return foot + paragraph(x.name, box.left + box.width / 2, foot, box.width, frame.svg,
      { class: "axis axis-x", "text-anchor": "middle" });
  };
  const bars = (data, frame) => {
    const parts = data.every.filter(row => !row.style).flatMap(row => row.parts);
    once(parts, p => p.name).forEach(p => legendEntry(frame.legend, p.name, fillSwatch(p.fill)));
    const sums = data.every.map(row => row.parts.reduce((sum, part) => sum + part.value, 0));
    return rows(data, frame, sums, 42, (row, top, px) => {
      let sum = 0;
      for (const part of row.parts) {
        const [from, to] = [px(sum), px(sum + part.value)];
        sum += part.value;
        if (to - from < 0.05 && row.parts.length > 1) continue;
        const fill = row.style ? `fill:var(--p${row.style.colour})` : `fill:${filled(part.fill, frame.svg)}`;
        make("rect", { class: "part", x: Math.min(from, to), y: top, width: Math.abs(to - from), height: 17, style: fill }, frame.svg);
        const of = part.name === row.name ? [] : [part.name];
        frame.mark({ x: (from + to) / 2, y: top + 8, box: [Math.min(from, to), top, Math.max(from, to), top + 17], title: row.name,
          words: [...of, full(part.value, data.x)] });
      }
      return Math.max(px(0), px(sum));
    });
  };
  const dots = (data, frame) => {
    const from = data.start.bound ?? 0;
    const values = data.every.flatMap(row => [row.value, ...row.runs, ...(row.interval ?? [])]).concat(data.x.log ? [] : from);
    return rows(data, frame, values, 42, (row, top, px) => {
      const y = top + 8, style = coloured(row.style);
      if (!row.alike) {
        make("path", { class: "track", d: `M${px(data.x.log ? row.value : from)},${y}H${px(row.value)}`, style }, frame.svg);
      }
      row.runs.forEach(run => make("path", { class: "run", d: `M${px(run)},${y - 7}V${y + 7}`, style }, frame.svg));
      let end = px(row.value);
      if (row.interval) {
        const [low, high] = row.interval.map(px);
        make("path", { class: "interval", d: `M${low},${y - 5}V${y + 5}M${low},${y}H${high}M${high},${y - 5}V${y + 5}`, style },
          frame.svg);
        end = Math.max(end, high);
      }
      marker(row.alike ? { ...row.style, hollow: true } : row.style, px(row.value), y, frame.svg);
      const words = [`median ${full(row.value, data.x)}`];
      if (row.interval) words.push(`interval ${full(row.interval[0], data.x)} to ${full(row.interval[1], data.x)}`);
      frame.mark({ x: px(row.value), y, title: row.name, words });
      row.runs.forEach((run, i) => frame.mark({ x: px(run), y, title: row.name, words: [`run ${i + 1}: ${full(run, data.x)}`] }));
      return Math.max(end, ...row.runs.map(px)) + 4;
    });
  };

  // From pale yellow to red: dark text is legible on all of it.
  const heatColour = share => `rgb(${[[255, 232], [247, 92], [200, 70]].map(([a, b]) => Math.round(a + (b - a) * share)).join()})`;
  const heat = (data, frame) => {
    const known = data.every.flatMap(p => p.rows.flatMap(r => r[1])).map(c => c.value).filter(v => v !== undefined);
    const low = Math.min(...known), high = Math.max(...known);
    const share = v => high > low ? Math.log(Math.max(v, 1) / Math.max(low, 1)) / Math.log(high / Math.max(low, 1)) : 0;
    if (known.length) {
      [0, 0.5, 1].forEach(at => legendEntry(frame.legend, full(low * (high / low) ** at, data.value), svg =>
        make("rect", { x: 8, y: 1, width: 18, height: 12, style: `fill:${heatColour(at)}` }, svg)));
    }
    if (data.every.some(p => p.rows.some(r => r[1].includes("saturated")))) {
      legendEntry(frame.legend, "saturated (×)", svg => make("rect", { x: 8, y: 1, width: 18, height: 12, class: "saturated" }, svg));
    }
    const columns = frame.width >= 640 ? 2 : 1, gap = 20;
    const each = (frame.width - gap * (columns - 1)) / columns;
    const left = Math.max(...data.every.flatMap(p => p.rows.map(r => wide(r[0])))) + 8;
    // Figures in all cells or in none; where those with their units are too wide, all in the unit of the largest.
    const size_of = panel => (each - left) / Math.max(panel.columns.length, 1);
    const narrowest = Math.min(...data.every.map(size_of)) - 3;
    const fits = text => known.every(v => wide(text(v)) < narrowest);
    const [factor, unit] = unitOf({ unit: data.value.unit }, high);
    const short = v => Number((v / factor).toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 6 });
    const shown = [v => full(v, data.value), short].find(fits);
    if (shown === short && known.length) html("li", {}, frame.legend, `figures in ${unit}`);
    let row = 0;
    for (let i = 0; i < data.panels.length; i += columns) {
      let deepest = 0;
      data.panels.slice(i, i + columns).forEach((panel, column) => {
        const corner = column * (each + gap);
        let top = row + 14;
        top += paragraph(panel.title, corner, top, each, frame.svg, { class: "panel" });
        top += paragraph(named(data.y, data.y.unit), corner, top, each, frame.svg, { class: "axis axis-y" }) - 8;
        const size = size_of(panel);
        [...panel.rows].reverse().forEach(([name, cells], j) => {
          const y = top + j * 26;
          make("text", { class: "tick tick-y", x: corner + left - 6, y: y + 17, "text-anchor": "end" }, frame.svg, name);
          cells.forEach((cell, k) => {
            const x = corner + left + k * size;
            if (cell === "empty") return;
            const said = cell === "saturated" ? "saturated" : full(cell.value, data.value);
            const look = cell === "saturated" ? { class: "saturated" } : { style: `fill:${heatColour(share(cell.value))}` };
            make("rect", { x, y, width: size - 2, height: 24, ...look }, frame.svg);
            const text = cell === "saturated" ? "×" : shown?.(cell.value);
            if (text) make("text", { class: "on-heat", x: x + size / 2 - 1, y: y + 16, "text-anchor": "middle" }, frame.svg, text);
            frame.mark({ x: x + size / 2, y: y + 12, box: [x, y, x + size, y + 26], title: panel.title, words: [
              `${data.value.label} ${said}`, `${data.x.label} ${panel.columns[k]}`,
              `${data.y.label} ${name}`] });
          });
        });
        const foot = top + panel.rows.length * 26 + 14;
        let end = -Infinity;
        panel.columns.forEach((name, k) => {
          const middle = corner + left + (k + 0.5) * size, half = wide(name) / 2;
          if (middle - half < end + 5) return;
          make("text", { class: "tick tick-x", x: middle, y: foot, "text-anchor": "middle" }, frame.svg, name);
          end = middle + half;
        });
        const used = paragraph(named(data.x, data.x.unit), corner + left + (each - left) / 2, foot + 18, each - left, frame.svg,
          { class: "axis axis-x", "text-anchor": "middle" });
        deepest = Math.max(deepest, foot + 18 + used);
      });
      row = deepest + 8;
    }
    return row;
  };

  // Each block is a bar that its parts fill; rows of bars, from left to right.
  const blocks = (data, frame) => {
    data.parts.forEach(part => legendEntry(frame.legend, part.name, fillSwatch(part.fill)));
    const columns = frame.width >= 640 ? 2 : 1, gap = 24;
    const each = (frame.width - gap * (columns - 1)) / columns;
    const high = printing ? 24 : 30;
    let row = 0;
    for (let i = 0; i < data.panels.length; i += columns) {
      let deepest = 0;
      data.panels.slice(i, i + columns).forEach((panel, column) => {
        const corner = column * (each + gap), left = corner + 44;
        let top = row + 14;
        top += paragraph(panel.title, corner, top, each, frame.svg, { class: "panel" });
        top += paragraph(named(data.y, data.y.unit), corner, top, each, frame.svg, { class: "axis axis-y" }) - 8;
        const most = Math.floor((each - 44) / 4);
        const lines = Math.ceil(panel.blocks.length / most), a_row = Math.ceil(panel.blocks.length / lines);
        const size = (each - 44) / a_row;
        // Below each row stand the places of its first and its last block.
        const step = high + LINE + 6;
        for (let line = 0; line < lines; line++) {
          const base = top + line * step + high;
          const count = Math.min(a_row, panel.blocks.length - line * a_row), first = line * a_row + 1;
          make("text", { class: "tick tick-x", x: left, y: base + 13 }, frame.svg, number(first));
          const last = number(first + count - 1);
          if (wide(last) + wide(number(first)) + 6 < size * count) make("text", { class: "tick tick-x", x: left + size * count,
            y: base + 13, "text-anchor": "end" }, frame.svg, last);
          ["100", "0"].forEach((text, k) => make("text", { class: "tick tick-y", x: left - 5, y: base - high * (1 - k) + (k ? 2 : 9),
            "text-anchor": "end" }, frame.svg, text));
          make("rect", { class: "ground", x: left, y: base - high, width: size * count, height: high }, frame.svg);
        }
        // One path a part: thousands of rectangles would be slow.
        const paths = data.parts.map(() => "");
        panel.blocks.forEach((shares, b) => {
          const x = left + b % a_row * size, base = top + Math.floor(b / a_row) * step + high;
          let y = base;
          shares.forEach((permille, k) => {
            const tall = permille / 1000 * high;
            if (tall > 0) paths[k] += `M${x.toFixed(2)},${y.toFixed(2)}h${(size * 0.94).toFixed(2)}v${(-tall).toFixed(2)}h${(-size * 0.94).toFixed(2)}Z`;
            y -= tall;
          });
          frame.mark({ x: x + size / 2, y: base - high / 2, box: [x, base - high, x + size, base], title: `${panel.title}, ${data.x.label} ${b + 1}`,
            words: data.parts.map((part, k) => `${part.name} ${number(shares[k] / 10)} %`) });
        });
        paths.forEach((d, k) => d && make("path", { d, style: `fill:${filled(data.parts[k].fill, frame.svg)}` }, frame.svg));
        const foot = top + lines * step + 10;
        const used = paragraph(named(data.x, data.x.unit), left + (each - 44) / 2, foot, each - 44, frame.svg,
          { class: "axis axis-x", "text-anchor": "middle" });
        deepest = Math.max(deepest, foot + used);
      });
      row = deepest + 10;
    }
    return row;
  };

  // Values under the pointer ------------------------------------------------------------------------------------

  const tip = html("div", { id: "tip", role: "status" }, document.body);
  const NEAR = 7;
  const point_at = (frame, mark) => {
    frame.svg.querySelector(".ring")?.remove();
    frame.at = mark;
    tip.hidden = !mark;
    if (!mark) return;
    make("circle", { class: "ring", cx: mark.x, cy: mark.y, r: 7 }, frame.svg);
    const close = mark.box ? [mark] : frame.marks.filter(m => !m.box && Math.hypot(m.x - mark.x, m.y - mark.y) <= NEAR);
    tip.replaceChildren();
    once([mark, ...close], m => m.title + m.words).slice(0, 5).forEach(m => {
      html("b", {}, tip, m.title);
      m.words.forEach(line => html("span", {}, tip, line));
    });
    const at = frame.svg.getBoundingClientRect();
    const [x, y] = [at.left + mark.x, at.top + mark.y];
    const room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 14, room - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 16 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 14 : y + 16}px`;
  };
  const nearest = (frame, event) => {
    const at = frame.svg.getBoundingClientRect();
    const [x, y] = [event.clientX - at.left, event.clientY - at.top];
    const inside = frame.marks.find(({ box }) => box && x >= box[0] && y >= box[1] && x <= box[2] && y <= box[3]);
    const away = m => Math.hypot(m.x - x, m.y - y);
    const closest = frame.marks.filter(m => !m.box || frame.marks.length < 40)
      .reduce((best, m) => !best || away(m) < away(best) ? m : best, null);
    return inside ?? (closest && away(closest) < 60 ? closest : null);
  };
  const keyed = (frame, event) => {
    const last = frame.marks.length - 1, at = frame.marks.indexOf(frame.at);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") point_at(frame, null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    const mark = frame.marks[Math.max(0, Math.min(to, last))];
    point_at(frame, mark);
    const ring = frame.svg.querySelector(".ring"), place = ring.getBoundingClientRect();
    if (place.top < 0 || place.bottom > innerHeight) {
      ring.scrollIntoView({ block: "center" });
      point_at(frame, mark);
    }
  };

  // The page ----------------------------------------------------------------------------------------------------

  const KINDS = { lines, bars, dots, heat, blocks };
  const draw = (figure, width) => {
    const place = figure.querySelector(".draw");
    const data = JSON.parse(figure.querySelector("script").textContent, printable);
    const title = figure.querySelector("h3, h4").textContent;
    // On paper each row of panels is a drawing of its own, as are so many bars as a page holds, so that pages can end
    // between them. All have the same axes.
    const [parts, most] = data.panels ? ["panels", 2] : ["rows", 18], every = data[parts], drawings = [];
    for (let i = 0; i === 0 || i < every.length; i += printing ? most : every.length) {
      drawings.push(piece({ ...data, [parts]: printing ? every.slice(i, i + most) : every, every }, width, title));
      if (!every.length) break;
    }
    const legend = drawings[0].legend;
    place.replaceChildren(...(legend.children.length ? [legend] : []), ...drawings.map(drawing => drawing.svg));
  };
  const piece = (data, width, title) => {
    count += 1;
    const svg = make("svg", { role: "img", "aria-label": `${title}. Arrow keys show the values.`, tabindex: 0 });
    const frame = { svg, width, marks: [], at: null, legend: html("ul", { class: "legend" }) };
    frame.mark = mark => frame.marks.push(mark);
    const height = Math.ceil(KINDS[data.kind](data, frame));
    for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(key, value);
    svg.addEventListener("pointermove", event => point_at(frame, nearest(frame, event)));
    svg.addEventListener("pointerdown", event => point_at(frame, nearest(frame, event)));
    svg.addEventListener("pointerleave", () => point_at(frame, null));
    svg.addEventListener("blur", () => point_at(frame, null));
    svg.addEventListener("keydown", event => keyed(frame, event));
    return frame;
  };
  let drawn = 0;
  const drawAll = width => {
    drawn = width;
    tip.hidden = true;
    document.querySelectorAll("figure.chart").forEach(figure => draw(figure, width));
  };
  // A window may be of no width while it opens.
  const room = () => Math.max(Math.floor(document.querySelector("main").clientWidth), 280);
  addEventListener("resize", () => { if (room() !== drawn && !printing) drawAll(room()); });
  addEventListener("beforeprint", () => { printing = true; drawAll(PAPER); });
  addEventListener("afterprint", () => { printing = false; drawAll(room()); });

  const THEMES = ["auto", "light", "dark"];
  const button = html("button", { id: "theme", type: "button" });
  const themed = theme => {
    document.documentElement.dataset.theme = theme;
    button.textContent = `Colours: ${theme}`;
  };
  button.addEventListener("click", () =>
    themed(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
  themed("auto");
  document.querySelector("main").prepend(button);
  drawAll(room());
})();
