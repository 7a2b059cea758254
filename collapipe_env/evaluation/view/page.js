
"use strict";
// Everything that comes from the run is set as text or as a number: nothing of it is read as HTML.
const D = JSON.parse(document.getElementById("data").textContent);
const PAGE = document.getElementById("page");
const SVG = "http://www.w3.org/2000/svg";
const HATCHED = 0, REBUILT = 1, LISTED = 2, LEFT_OUT = 3;
const ROW = [8, 13, 9, 9];
const NODES = ["#88CCEE", "#CC6677", "#117733", "#DDCC77", "#332288", "#44AA99", "#AA4499", "#999933", "#882255"];
const RAMPS = [["#9ecae1", "#08306b"], ["#fdbe85", "#a63603"], ["#c6c6c6", "#525252"]];
const DIRECTIONS = ["forward", "backward", "weight gradient"];

window.addEventListener("error", e => fault(e.message));
document.addEventListener("securitypolicyviolation", e => fault("refused by the page's policy: " + e.violatedDirective));

function fault(text) {
  document.documentElement.dataset.fault = text;
  PAGE.prepend(el("p", {id: "fault"}, "This page has an error: " + text));
}

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map(child => child instanceof Node ? child : String(child)));
  return made;
}

function draw(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function sheet(width, height, label) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", `0 0 ${width} ${height}`);
  made.setAttribute("width", width);
  made.setAttribute("height", height);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  return made;
}

function unpack([kind, text]) {
  const types = {"<f4": Float32Array, "<u4": Uint32Array, "<u2": Uint16Array, "<u1": Uint8Array};
  const bytes = atob(text), raw = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) raw[i] = bytes.charCodeAt(i);
  return new types[kind](raw.buffer);
}

function starts(counts) {
  const found = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) found[i + 1] = found[i] + counts[i];
  return found;
}

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function mixed(from, to, share) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const one = at => Math.round(part(from, at) + share * (part(to, at) - part(from, at))).toString(16).padStart(2, "0");
  return "#" + one(1) + one(3) + one(5);
}

function ticks(low, high, most) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

const tip = el("div", {id: "tip"});
document.body.append(tip);
function say(event, text) {
  tip.textContent = text;
  tip.style.display = text ? "block" : "none";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
}

/* ---------- one episode ---------- */

function opened(detail) {
  if (detail.open) return detail.open;
  const a = Object.fromEntries(Object.entries(detail.arrays).map(([name, value]) => [name, unpack(value)]));
  const open = {a, N: detail.clusters, K: detail.devices, rounds: unpack(detail.rounds), centres: unpack(detail.centres)};
  open.phase = starts(a.phase_count);
  open.element = starts(a.element_count);
  open.event = starts(a.event_count);
  detail.open = open;
  return open;
}

// The packed round that is nearest to a round's number.
function placeOf(open, round) {
  let best = 0;
  for (let i = 0; i < open.rounds.length; i++)
    if (Math.abs(open.rounds[i] - round) < Math.abs(open.rounds[best] - round)) best = i;
  return best;
}

// All forwards, a flush, all backwards; micro-batches in order, each element one at a time.
function gpipe(forward, backward, latency, M) {
  const events = [], at = new Float64Array(M), L = forward.length;
  const pass = (i, seconds, direction) => {
    let free = 0;
    for (let m = 0; m < M; m++) {
      const begin = Math.max(at[m], free), end = begin + seconds;
      events.push([i, m, direction, begin, end]);
      free = end;
      at[m] = end + latency[i];
    }
  };
  for (let i = 0; i < L; i++) pass(i, forward[i], 0);
  at.fill(Math.max(...at));
  for (let i = L - 1; i >= 0; i--) pass(i, backward[i], 1);
  return events;
}

function clusterAt(detail, place, n) {
  const o = opened(detail), a = o.a, c = place * o.N + n;
  const phases = [], elements = [];
  let before = 0;
  for (let i = o.phase[c]; i < o.phase[c + 1]; i++) {
    phases.push({kind: a.phase[i], start: before, end: a.phase_end[i]});
    before = a.phase_end[i];
  }
  const chain = detail.chains[a.chain[c]];
  for (let i = o.element[c], j = 0; i < o.element[c + 1]; i++, j += 3) {
    const kind = chain[j];
    elements.push({kind, node: chain[j + 1], label: detail.labels[chain[j + 2]], forward: a.element_forward[i], backward: a.element_backward[i], latency: detail.latency[kind]});
  }
  return {n, c, phases, elements, end: before, mode: a.mode[c], M: a.micro_batches[c], delay: a.cluster_delay[c],
    plays: a.plays[c], arrivals: a.arrivals[c], bandwidth: a.bandwidth[c]};
}

function eventsOf(detail, cluster) {
  const o = opened(detail), a = o.a, step = cluster.phases.find(p => D.phases[p.kind].key === "step");
  if (!step || cluster.mode === HATCHED || cluster.mode === LEFT_OUT) return [];
  let events = [];
  if (cluster.mode === REBUILT) {
    const times = key => cluster.elements.map(e => e[key]);
    events = gpipe(times("forward"), times("backward"), times("latency"), cluster.M);
    // The last gradient still has to reach the CU.
    const planned = Math.max(...events.map(e => e[4])) + cluster.elements[0].latency, failed = cluster.phases.some(p => D.phases[p.kind].key === "detection");
    // What is worked out here has to be as long as the simulator says.
    if (!failed && Math.abs(planned - (step.end - step.start)) > 1e-4 * Math.max(step.end, 1e-9))
      fault(`round ${o.rounds[Math.floor(cluster.c / o.N)]}, c${cluster.n}: a local step of ${planned} s, not ${step.end - step.start} s`);
  } else {
    const unit = (step.end - step.start) / 65535;
    for (let i = o.event[cluster.c]; i < o.event[cluster.c + 1]; i++)
      events.push([a.event_element[i], a.event_batch[i], a.event_direction[i], a.event_start[i] * unit, a.event_end[i] * unit]);
  }
  for (const e of events) { e[3] += step.start; e[4] += step.start; }
  return events.filter(e => e[3] < step.end).map(e => [e[0], e[1], e[2], e[3], Math.min(e[4], step.end)]);
}

/* ---------- drawing a round ---------- */

const LEFT = 128, WIDTH = 1220;

function gantt(detail, place, everyCluster) {
  const o = opened(detail), all = Array.from({length: o.N}, (_, n) => clusterAt(detail, place, n));
  const slow = [...all].sort((x, y) => y.delay - x.delay);
  const detailed = new Set((everyCluster ? slow.slice(0, 16) : slow.slice(0, 4)).map(c => c.n));
  const end = Math.max(...all.map(c => c.end), 1e-12), x = s => LEFT + (WIDTH - LEFT - 12) * s / end;
  const height = c => detailed.has(c.n) ? 30 + c.elements.reduce((sum, e) => sum + ROW[e.kind], 0) : 13;
  const svg = sheet(WIDTH, all.reduce((sum, c) => sum + height(c), 0) + 40, "Gantt chart of the clusters' pipelines");
  svg.id = "gantt";
  let top = 4, bars = 0;
  const hits = [], foot = Number(svg.getAttribute("height")) - 34;
  for (const t of ticks(0, end, 10)) {
    draw(svg, "line", {x1: x(t), x2: x(t), y1: 0, y2: foot, stroke: "#e8e8e8"});
    draw(svg, "text", {x: x(t), y: foot + 13, "text-anchor": "middle"}, short(t));
  }
  draw(svg, "text", {x: (LEFT + WIDTH) / 2, y: foot + 29, "text-anchor": "middle"}, "time since the start of the round (s)");
  for (const c of all) {
    const big = detailed.has(c.n), strip = big ? 15 : 10;
    draw(svg, "text", {x: LEFT - 8, y: top + strip - 3, "text-anchor": "end", class: big ? "strong" : "", "font-size": big ? 12 : 10},
      `c${c.n}   ${short(c.delay)} s` + (c.plays ? "" : ", sits out"));
    let step = 0;
    const steps = c.phases.filter(p => D.phases[p.kind].key === "step").length;
    for (const p of c.phases) {
      const kind = D.phases[p.kind], w = x(p.end) - x(p.start);
      draw(svg, "rect", {x: x(p.start), y: top, width: Math.max(w, 0.4), height: strip, fill: kind.colour, stroke: "#fff", "stroke-width": 0.6, class: "phase"});
      let name = kind.name;
      if (kind.key === "step") name = steps > 1 ? `local step ${++step} of ${steps}` : name;
      hits.push([x(p.start), top, w, strip, `c${c.n}: ${name}\n${short(p.start)} to ${short(p.end)} s`]);
      if (big && w > 6.4 * name.length + 6) draw(svg, "text", {x: x(p.start) + w / 2, y: top + 11.5, "text-anchor": "middle", class: "in", "font-size": 10}, name);
    }
    top += strip + 1;
    if (!big) { top += 2; continue; }
    const rows = [];
    for (const e of c.elements) {
      if (e.kind === 1) {
        draw(svg, "rect", {x: LEFT, y: top, width: WIDTH - LEFT - 12, height: ROW[1], fill: "#f5f5f5"});
        if (e.node > 0) draw(svg, "rect", {x: LEFT - 7, y: top + 2, width: 5, height: ROW[1] - 4, fill: NODES[(e.node - 1) % NODES.length]});
      }
      draw(svg, "text", {x: LEFT - 11, y: top + ROW[e.kind] - 1.5, "text-anchor": "end", class: e.kind % 2 ? "" : "faint", "font-size": e.kind === 1 ? 10 : 8}, e.label);
      rows.push(top);
      top += ROW[e.kind];
    }
    const first = c.phases.find(p => D.phases[p.kind].key === "step"), events = eventsOf(detail, c);
    for (const p of c.phases) {
      const key = D.phases[p.kind].key, y = rows[0], h = top - y;
      if ((key === "step" && (p !== first || !events.length)) || key === "replay")
        draw(svg, "rect", {x: x(p.start), y, width: x(p.end) - x(p.start), height: h, fill: "url(#hatch)"});
      else if (key !== "step" && key !== "wait")
        draw(svg, "rect", {x: x(p.start), y, width: x(p.end) - x(p.start), height: h, fill: D.phases[p.kind].colour, opacity: 0.2});
    }
    const shades = Math.min(c.M, 16), paths = new Map();
    for (const [i, m, direction, s, e] of events) {
      const shade = Math.floor(m * shades / Math.max(c.M, 1)), key = direction * 100 + shade, h = ROW[c.elements[i].kind];
      const left = x(s), wide = Math.max(x(e) - left, 0.5);
      const inset = wide > 3 ? 0.3 : 0;
      paths.set(key, (paths.get(key) || "") + `M${(left + inset).toFixed(2)} ${rows[i] + 1}h${(wide - 2 * inset).toFixed(2)}v${h - 2}h${(2 * inset - wide).toFixed(2)}z`);
      hits.push([left, rows[i], wide, h, `c${c.n}, ${c.elements[i].label}: micro-batch ${m}, ${DIRECTIONS[direction]}\n${short(s)} to ${short(e)} s`]);
      bars++;
    }
    for (const [key, d] of paths) {
      const ramp = RAMPS[Math.floor(key / 100)];
      draw(svg, "path", {d, fill: mixed(ramp[0], ramp[1], shades > 1 ? (key % 100) / (shades - 1) : 0.5), class: "bars"});
    }
    top += 14;
  }
  const pattern = draw(draw(svg, "defs", {}), "pattern", {id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"});
  draw(pattern, "line", {x1: 0, y1: 0, x2: 0, y2: 7, stroke: "#cfcfcf", "stroke-width": 1.4});
  svg.dataset.bars = bars;
  pointed(svg, hits);
  return svg;
}

// Says what is under the pointer.
function pointed(svg, hits) {
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const px = (event.clientX - box.left) * scale, py = (event.clientY - box.top) * scale;
    let found = "";
    for (const [left, top, wide, high, text] of hits)
      if (px >= left && px <= left + Math.max(wide, 1) && py >= top && py <= top + high) found = text;
    say(event, found);
  });
  svg.addEventListener("mouseleave", event => say(event, ""));
}

function placesOf(detail, place) {
  const o = opened(detail), size = o.N * o.K * 2;
  return detail.moves ? o.a.places.subarray(place * size, (place + 1) * size) : o.a.places;
}

// Hops of a cluster's pipeline as pairs of nodes and seconds for all micro-batches.
function hops(cluster) {
  if (!cluster.plays) return [];
  const nodes = cluster.elements.filter(e => e.kind === 1).map(e => e.node), chain = [0, ...nodes, 0];
  return cluster.elements.filter(e => e.kind === 0).slice(0, chain.length - 1)
    .map((e, i) => [chain[i], chain[i + 1], e.forward * cluster.M]).filter(([from, to]) => from !== to);
}

function map(detail, place) {
  const o = opened(detail), size = 300, pad = 20, svg = sheet(size, size + 34, "Map of base station, CUs and devices");
  svg.id = "map";
  const offsets = placesOf(detail, place);
  let far = 1;
  for (const v of o.centres) far = Math.max(far, Math.abs(v) + detail.side / 2);
  const scale = (size / 2 - pad) / far, X = v => size / 2 + v * scale, Y = v => size / 2 - v * scale;
  draw(svg, "rect", {x: 0.5, y: 0.5, width: size - 1, height: size - 1, fill: "none", stroke: "#bbb"});
  const hits = [];
  for (let n = 0; n < o.N; n++) {
    const cx = o.centres[2 * n], cy = o.centres[2 * n + 1];
    draw(svg, "line", {x1: X(0), y1: Y(0), x2: X(cx), y2: Y(cy), stroke: "#ddd"});
    const half = detail.side / 2;
    draw(svg, "rect", {x: X(cx - half), y: Y(cy + half), width: 2 * half * scale, height: 2 * half * scale, fill: "#f1f4f8", stroke: "#cdd6e0"});
    for (let k = 0; k < o.K; k++) {
      const i = n * o.K + k;
      if (!o.a.present[place * o.N * o.K + i]) continue;
      draw(svg, "circle", {cx: X(cx + offsets[2 * i]), cy: Y(cy + offsets[2 * i + 1]), r: 2.2, fill: NODES[k % NODES.length], class: "device"});
    }
    draw(svg, "rect", {x: X(cx) - 3, y: Y(cy) - 3, width: 6, height: 6, fill: "#555", transform: `rotate(45 ${X(cx)} ${Y(cy)})`, class: "cu"});
    if (o.N <= 20) draw(svg, "text", {x: X(cx), y: Math.max(Y(cy + half) - 3, 10), "text-anchor": "middle", "font-size": 9}, `c${n}`);
    hits.push([X(cx - half), Y(cy + half), 2 * half * scale, 2 * half * scale, `c${n}: CU ${short(Math.hypot(cx, cy))} m from the base station`]);
  }
  draw(svg, "path", {d: `M${X(0)} ${Y(0) - 7}l6.5 11h-13z`, fill: "#222", class: "station"});
  const length = ticks(0, far, 4)[1] || far;
  draw(svg, "path", {d: `M4 ${size + 12}v4h${length * scale}v-4`, fill: "none", stroke: "#222"});
  draw(svg, "text", {x: 10 + length * scale, y: size + 17}, `${short(length)} m`);
  draw(svg, "text", {x: 0, y: size + 31, "font-size": 10}, "▲ base station   ◆ CU   ● device that is there");
  pointed(svg, hits);
  return svg;
}

function zoom(detail, place, n) {
  const o = opened(detail), size = 170, svg = sheet(size, size + 18, `Map of cluster ${n}`), c = clusterAt(detail, place, n);
  svg.classList.add("zoom");
  const offsets = placesOf(detail, place), half = Math.max(detail.side / 2, detail.reach || 0) * 1.08, middle = size / 2;
  const X = v => middle + v * middle / half, Y = v => middle - v * middle / half;
  draw(svg, "rect", {x: 0.5, y: 0.5, width: size - 1, height: size - 1, fill: "#fbfcfd", stroke: "#cdd6e0"});
  if (detail.reach) draw(svg, "circle", {cx: X(0), cy: Y(0), r: detail.reach * middle / half, fill: "none", stroke: "#bbb", "stroke-dasharray": "3 3"});
  const at = node => node ? [offsets[2 * (n * o.K + node - 1)], offsets[2 * (n * o.K + node - 1) + 1]] : [0, 0];
  const hits = [], links = hops(c), times = links.map(l => l[2]), low = Math.min(...times), high = Math.max(...times);
  for (const [from, to, seconds] of links) {
    const [x1, y1] = at(from), [x2, y2] = at(to), share = high > low ? Math.log(seconds / low) / Math.log(high / low) : 0;
    draw(svg, "line", {x1: X(x1), y1: Y(y1), x2: X(x2), y2: Y(y2), stroke: mixed("#f2b134", "#6a1b7b", share || 0), "stroke-width": 1.8, class: "link"});
    hits.push([X((x1 + x2) / 2) - 8, Y((y1 + y2) / 2) - 8, 16, 16, `${from ? "d" + (from - 1) : "CU"} to ${to ? "d" + (to - 1) : "CU"}: ${short(seconds)} s for all micro-batches`]);
  }
  for (let k = 0; k < o.K; k++) {
    const i = n * o.K + k, [dx, dy] = at(k + 1);
    if (!o.a.present[place * o.N * o.K + i]) continue;
    const blocks = o.a.blocks[place * o.N * o.K + i];
    draw(svg, "circle", {cx: X(dx), cy: Y(dy), r: 5, fill: blocks ? NODES[k % NODES.length] : "#fff", stroke: NODES[k % NODES.length], "stroke-width": 1.5, class: "device"});
    const right = X(dx) > size - 26;
    draw(svg, "text", {x: X(dx) + (right ? -7 : 7), y: Math.max(Y(dy) - 4, 10), "text-anchor": right ? "end" : "start", "font-size": 9}, `d${k}`);
    hits.push([X(dx) - 6, Y(dy) - 6, 12, 12, `d${k}: ${blocks} block${blocks === 1 ? "" : "s"}`]);
  }
  draw(svg, "rect", {x: X(0) - 4, y: Y(0) - 4, width: 8, height: 8, fill: "#555", transform: `rotate(45 ${X(0)} ${Y(0)})`});
  draw(svg, "text", {x: 0, y: size + 13, "font-size": 10}, `c${n}, ${short(2 * half)} m across`);
  pointed(svg, hits);
  return svg;
}

function nodeBars(detail, place, key, title, line) {
  const o = opened(detail), nodes = o.N * (o.K + 1), high = 120, left = 44, wanted = left + 6 + 17 * nodes;
  // Wider where all names then have room; of larger systems a key has the colours.
  const width = wanted <= WIDTH ? Math.max(590, wanted) : 590, named = wanted <= WIDTH;
  const svg = sheet(width, high + (named ? 46 : 34), title), values = o.a[key].subarray(place * nodes, (place + 1) * nodes);
  svg.classList.add("nodes");
  let most = line || 0;
  for (const v of values) most = Math.max(most, v);
  most = most || 1;
  const each = (width - left - 6) / nodes, Y = v => 6 + high * (1 - v / most), hits = [];
  for (const t of ticks(0, most, 4)) {
    draw(svg, "line", {x1: left, x2: width - 6, y1: Y(t), y2: Y(t), stroke: "#eee"});
    draw(svg, "text", {x: left - 5, y: Y(t) + 4, "text-anchor": "end", "font-size": 10}, short(t));
  }
  const bars = NODES.map(() => "");
  let units = "";
  for (let i = 0; i < nodes; i++) {
    const node = i % (o.K + 1), n = Math.floor(i / (o.K + 1)), x = left + i * each;
    const bar = `M${x.toFixed(2)} ${(6 + high).toFixed(2)}V${Y(values[i]).toFixed(2)}h${Math.max(each * 0.82, 0.4).toFixed(2)}V${6 + high}z`;
    if (node) bars[(node - 1) % NODES.length] += bar; else units += bar;
    if (!node && o.N <= 20) draw(svg, "text", {x: x + each * (o.K + 1) / 2, y: high + (named ? 33 : 20), "text-anchor": "middle", "font-size": 10}, `c${n}`);
    const name = node ? `d${node - 1}` : "CU";
    if (named) draw(svg, "text", {x: x + each * 0.41, y: high + 17, "text-anchor": "middle", "font-size": 9, class: "node"}, name);
    hits.push([x, 6, each, high, `c${n}, ${name}: ${short(values[i])}`]);
  }
  bars.forEach((d, k) => d && draw(svg, "path", {d, fill: NODES[k]}));
  draw(svg, "path", {d: units, fill: "#555"});
  if (line) draw(svg, "line", {x1: left, x2: width - 6, y1: Y(line), y2: Y(line), stroke: "#b3261e", "stroke-dasharray": "4 3"});
  pointed(svg, hits);
  const devices = Array.from({length: o.K}, (_, k) => k);
  const colours = NODES.map((colour, i) => [colour, devices.filter(k => k % NODES.length === i).map(k => `d${k}`).join(", ")]);
  const names = [["#555", "CU"], ...colours].filter(([, text]) => text).map(([colour, text]) => el("span", {class: "node"}, swatch(colour), text));
  return el("div", {}, el("h3", {}, title), svg, ...(named ? [] : [el("div", {class: "key"}, ...names)]));
}

function clusterTable(detail, place) {
  const o = opened(detail), rows = [];
  for (let n = 0; n < o.N; n++) {
    const c = clusterAt(detail, place, n), first = (place * o.N + n) * o.K;
    rows.push([`c${n}`, Number(c.delay.toPrecision(4)), [...o.a.blocks.subarray(first, first + o.K)].join(" "), c.M,
      Number((100 * c.bandwidth).toPrecision(3)), Number((100 * c.arrivals).toPrecision(3))]);
  }
  const made = table({key: "clusters", title: "", columns: ["cluster", "delay (s)", "blocks of d0, d1, ...", "micro-batches", "uplink share (%)", "arrived (%)"], rows});
  return made.querySelector(".scroll");
}

/* ---------- charts over the rounds ---------- */

const hidden = new Set();

function chart(spec) {
  const width = 400, high = 150, left = 54, foot = 22, svg = sheet(width, high + foot + 6, spec.title);
  svg.classList.add("chart");
  svg.dataset.key = spec.key;
  const shown = Object.entries(spec.lines).filter(([name]) => !hidden.has(name));
  if (!spec.open) spec.open = Object.fromEntries(Object.entries(spec.lines).map(([name, value]) => [name, unpack(value)]));
  let low = Infinity, top = -Infinity;
  for (const [name] of shown) for (const v of spec.open[name]) if (Number.isFinite(v)) { low = Math.min(low, v); top = Math.max(top, v); }
  if (low > top) [low, top] = [0, 1];
  if (low > 0 && low < 0.6 * top) low = 0;
  if (top - low < 1e-12) top = low + Math.max(Math.abs(low) * 0.1, 1e-6);
  const X = r => left + (width - left - 10) * (D.rounds > 1 ? (r - 1) / (D.rounds - 1) : 0.5), Y = v => 6 + high * (1 - (v - low) / (top - low));
  for (const t of ticks(low, top, 4)) {
    draw(svg, "line", {x1: left, x2: width - 10, y1: Y(t), y2: Y(t), stroke: "#eee"});
    draw(svg, "text", {x: left - 5, y: Y(t) + 4, "text-anchor": "end", "font-size": 10}, short(t));
  }
  for (const t of ticks(1, D.rounds, 6)) if (Number.isInteger(t)) draw(svg, "text", {x: X(t), y: high + 20, "text-anchor": "middle", "font-size": 10}, t);
  for (const [name] of shown) {
    let d = "", pen = "M";
    spec.open[name].forEach((v, i) => {
      if (!Number.isFinite(v)) { pen = "M"; return; }
      d += `${pen}${X(Math.min(1 + (i + 0.5) * D.width - 0.5, D.rounds)).toFixed(1)} ${Y(v).toFixed(1)}`;
      pen = "L";
    });
    const who = D.schedulers.find(s => s.name === name);
    draw(svg, "path", {d, fill: "none", stroke: who.colour, "stroke-width": name === D.details[state.who].name ? 2 : 1.2, class: "line"});
  }
  draw(svg, "line", {x1: X(state.round), x2: X(state.round), y1: 6, y2: 6 + high, stroke: "#222", "stroke-width": 0.8, class: "now"});
  const roundAt = event => {
    const box = svg.getBoundingClientRect(), px = (event.clientX - box.left) * width / box.width;
    return Math.max(1, Math.min(D.rounds, Math.round(1 + (px - left) / (width - left - 10) * (D.rounds - 1))));
  };
  svg.addEventListener("mousemove", event => {
    const r = roundAt(event), i = Math.floor((r - 1) / D.width);
    say(event, [`round ${r}`, ...shown.map(([name]) => `${D.schedulers.find(s => s.name === name).title}: ${short(spec.open[name][i]) || "no number"}`)].join("\n"));
  });
  svg.addEventListener("mouseleave", event => say(event, ""));
  svg.addEventListener("click", event => go({round: roundAt(event)}));
  const place = el("div", {}, el("h3", {}, spec.title), svg);
  spec.X = X;
  spec.svg = svg;
  return place;
}

/* ---------- tables ---------- */

function table(spec) {
  const words = spec.columns.map((_, i) => spec.rows.some(row => typeof row[i] === "string"));
  const body = el("tbody"), head = el("tr");
  let sorted = -1, up = true;
  const fill = () => body.replaceChildren(...spec.rows.map(row => el("tr", {}, ...row.map((v, i) => el("td", {class: words[i] ? "words" : ""}, typeof v === "number" ? short(v) : v ?? "")))));
  const sort = i => {
    up = sorted === i ? !up : true;
    sorted = i;
    const missing = v => v === null || v === "";
    spec.rows.sort((x, y) => missing(x[i]) - missing(y[i]) || (up ? 1 : -1) * (words[i] ? String(x[i]).localeCompare(String(y[i])) : x[i] - y[i]));
    [...head.children].forEach((th, j) => th.setAttribute("aria-sort", j === i ? (up ? "ascending" : "descending") : "none"));
    [...head.children].forEach((th, j) => { th.lastChild.textContent = j === i ? (up ? " ▲" : " ▼") : ""; });
    fill();
  };
  spec.columns.forEach((name, i) => {
    const th = el("th", {class: words[i] ? "words" : "", tabindex: 0, scope: "col", "aria-sort": "none"}, name, el("span"));
    th.addEventListener("click", () => sort(i));
    th.addEventListener("keydown", event => { if (event.key === "Enter") sort(i); });
    head.append(th);
  });
  fill();
  return el("section", {}, ...(spec.title ? [el("h2", {}, spec.title)] : []), el("div", {class: "scroll", "data-table": spec.key}, el("table", {}, el("thead", {}, head), body)));
}

/* ---------- the page ---------- */

const checking = location.hash.includes("check=1");
const state = {round: 1, who: 0, all: false, timer: 0};
const slider = el("input", {type: "range", min: 1, max: D.rounds, value: 1, "aria-label": "round"});
const label = el("output"), play = el("button", {type: "button"}, "▶ play");
const who = el("select", {"aria-label": "scheduler"}, ...D.details.map((d, i) => el("option", {value: i}, d.title)));
const every = el("input", {type: "checkbox", id: "every"}), facts = el("p", {class: "big", id: "round"});
const picture = el("div", {class: "wide"}), beside = el("div", {class: "row"}), charts = el("div", {class: "charts"}), key = el("div", {class: "key"});

function swatch(colour) {
  const svg = sheet(11, 11, "");
  draw(svg, "rect", {width: 11, height: 11, fill: colour});
  return svg;
}

function valueAt(name, chartKey) {
  const spec = D.charts.find(c => c.key === chartKey);
  return spec && spec.open[name] ? spec.open[name][Math.floor((state.round - 1) / D.width)] : NaN;
}

function showCharts() {
  charts.replaceChildren(...D.charts.map(chart));
}

function showRound() {
  const detail = D.details[state.who], o = opened(detail), place = placeOf(o, state.round), packed = o.rounds[place];
  slider.value = state.round;
  label.textContent = `round ${state.round} of ${D.rounds}`;
  const numbers = [["delay", "s"], ["loss", "nat"], ["energy", "J"], ["backlog", "budgets in queues"]]
    .map(([name, unit]) => [valueAt(detail.name, name), unit, name]).filter(([v]) => Number.isFinite(v))
    .map(([v, unit, name]) => `${name === "backlog" ? "" : name + " "}${short(v)} ${unit}`);
  facts.textContent = `${detail.title}, round ${state.round}: ${numbers.join(", ")}` + (packed === state.round ? "" : `; the pipelines below are those of round ${packed}`);
  picture.replaceChildren(gantt(detail, place, state.all));
  const slow = Array.from({length: o.N}, (_, n) => n).sort((x, y) => o.a.cluster_delay[place * o.N + y] - o.a.cluster_delay[place * o.N + x]).slice(0, 4).sort((x, y) => x - y);
  beside.replaceChildren(
    el("div", {}, el("h3", {}, detail.moves ? "Where devices are" : "Layout"), map(detail, place)),
    el("div", {}, el("h3", {}, o.N > 4 ? "The four slowest clusters" : "Clusters"), el("div", {class: "row"}, ...slow.map(n => zoom(detail, place, n)))),
    nodeBars(detail, place, "backlog", "Energy queue of each node after the round (budgets)", 0),
    nodeBars(detail, place, "ratio", "Energy of each node in the round over a budget", o.a.allowance[place]),
    el("div", {}, el("h3", {}, "Plan"), clusterTable(detail, place)));
  for (const spec of D.charts) {
    const now = spec.svg.querySelector(".now");
    now.setAttribute("x1", spec.X(state.round));
    now.setAttribute("x2", spec.X(state.round));
  }
}

function go(change) {
  const other = change.who !== undefined && change.who !== state.who;
  Object.assign(state, change);
  state.round = Math.max(1, Math.min(D.rounds, Math.round(state.round) || 1));
  who.value = state.who;
  if (other) showCharts();
  showRound();
  const place = `#round=${state.round}&scheduler=${encodeURIComponent(D.details[state.who].name)}`;
  if (location.hash !== place) history.replaceState(null, "", place);
}

function asked() {
  const found = new URLSearchParams(location.hash.slice(1)), i = D.details.findIndex(d => d.name === found.get("scheduler"));
  return {round: Number(found.get("round")) || state.round, who: i < 0 ? state.who : i};
}

function stop() {
  clearInterval(state.timer);
  state.timer = 0;
  play.textContent = "▶ play";
}

function toggle() {
  if (state.timer) return stop();
  if (state.round >= D.rounds) go({round: 1});
  play.textContent = "❚❚ pause";
  state.timer = setInterval(() => state.round < D.rounds ? go({round: state.round + 1}) : stop(), 200);
}

function step(by) { stop(); go({round: state.round + by}); }

slider.addEventListener("input", () => { stop(); go({round: Number(slider.value)}); });
who.addEventListener("change", () => go({who: Number(who.value)}));
every.addEventListener("change", () => go({all: every.checked}));
play.addEventListener("click", toggle);
addEventListener("hashchange", () => go(asked()));
document.addEventListener("keydown", event => {
  if (["SELECT", "TH", "BUTTON"].includes(event.target.tagName) && !event.key.startsWith("Arrow")) return;
  if (event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
  const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10};
  if (event.key in moves) step(moves[event.key]);
  else if (event.key === "Home") step(1 - state.round);
  else if (event.key === "End") step(D.rounds - state.round);
  else if (event.key === " ") toggle();
  else return;
  event.preventDefault();
});

function button(text, name, by) {
  const made = el("button", {type: "button", "aria-label": name}, text);
  made.addEventListener("click", () => step(by));
  return made;
}

for (const s of D.schedulers) {
  const made = el("button", {type: "button", "aria-pressed": "true"}, swatch(s.colour), s.title);
  made.addEventListener("click", () => {
    if (!hidden.delete(s.name)) hidden.add(s.name);
    made.setAttribute("aria-pressed", String(!hidden.has(s.name)));
    showCharts();
  });
  key.append(made);
}
const used = new Set(D.details.flatMap(d => [...opened(d).a.phase]));
const phaseKey = el("div", {class: "key"},
  ...[["forward", mixed(...RAMPS[0], 0.5)], ["backward", mixed(...RAMPS[1], 0.5)]].map(([name, colour]) => el("span", {}, swatch(colour), name)),
  ...D.phases.map((p, i) => [p, i]).filter(([p, i]) => used.has(i) && p.key !== "wait").map(([p]) => el("span", {}, swatch(p.colour), p.name)),
  el("span", {}, "shades: micro-batches, the first one light; hatched: a local step that is not drawn in detail"));

PAGE.append(el("h1", {}, D.title), el("dl", {}, ...D.facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  ...D.notes.map(text => el("p", {class: "note"}, text)),
  el("div", {class: "bar"}, who, button("◀", "round before", -1), play, button("▶", "next round", 1), slider, label,
    el("label", {for: "every"}, every, " more clusters in detail")),
  facts, phaseKey, picture, beside,
  el("h2", {}, "Over the rounds"), el("p", {class: "note"}, "A click in a chart goes to that round. Names show and hide lines; the thick line is the scheduler above."), key, charts,
  ...D.tables.map(table),
  el("p", {class: "note"}, "Tables are sorted by a click on a column's head. Keys: left and right for a round, Page Up and Page Down for ten, Home, End, and the space bar to play."));
showCharts();
go(asked());
// #check=1 compares every local step that is worked out here with the simulator's, for tests.
if (checking) {
  let steps = 0;
  for (const detail of D.details) {
    const o = opened(detail);
    for (let place = 0; place < o.rounds.length; place++)
      for (let n = 0; n < o.N; n++) steps += eventsOf(detail, clusterAt(detail, place, n)).length > 0;
  }
  document.documentElement.dataset.checked = steps;
}
document.documentElement.dataset.state = "ready";
