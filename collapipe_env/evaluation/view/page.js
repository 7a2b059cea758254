
"use strict";
// Everything that comes from the run is set as text or as a number: nothing of it is read as HTML.
const D = JSON.parse(document.getElementById("data").textContent);
const PAGE = document.getElementById("page"), PARTS = 1e5;
const ROW = {hop: 10, compute: 13, uplink: 10, server: 10};
const NODES = ["#88CCEE", "#CC6677", "#117733", "#DDCC77", "#332288", "#44AA99", "#AA4499", "#999933", "#882255"];
const colourOf = node => node ? NODES[(node - 1) % NODES.length] : "#555";
const nameOf = node => node ? `d${node - 1}` : "CU";
const PASSES = [["forward", "#9ecae1", "#08306b"], ["backward", "#fdbe85", "#a63603"], ["weight gradient", "#c6c6c6", "#525252"]];

for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) addEventListener(kind, event => {
  const text = String(event.message ?? event.reason ?? `refused by the page's policy: ${event.violatedDirective}`);
  document.documentElement.dataset.fault = text;
  PAGE.prepend(el("p", {id: "fault"}, `This page has an error: ${text}`));
});

/* ---------- elements ---------- */

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map(child => child instanceof Node ? child : String(child)));
  return made;
}

function el(name, attributes = {}, ...children) { return filled(document.createElement(name), attributes, children); }

function draw(parent, name, attributes, ...words) {
  const made = filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, words);
  if (parent) parent.append(made);
  return made;
}

function sheet(width, height, label) {
  return draw(null, "svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label});
}

function write(svg, x, y, words, anchor = "middle", size = 10, more = {}) {
  draw(svg, "text", {x, y, "text-anchor": anchor, "font-size": size, ...more}, words);
}

const swatch = fill => filled(sheet(11, 11, ""), {}, [draw(null, "rect", {width: 11, height: 11, fill})]);

const short = v => v === null || v === undefined ? "" : String(Number.isInteger(v) ? v : Number(v.toPrecision(4)));
const shaded = ([, light, dark], share) => `color-mix(in srgb, ${dark} ${Math.round(100 * share)}%, ${light})`;

function ticks(low, high, most) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(f => f * power).find(s => s >= 0.999 * rough);
  const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({length: count}, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// Lines across a chart for values up to the largest, and their numbers.
function scaleY(svg, low, high, y, left, right) {
  for (const t of ticks(low, high, 4)) {
    draw(svg, "line", {x1: left, x2: right, y1: y(t), y2: y(t), stroke: "#eee"});
    write(svg, left - 5, y(t) + 4, short(t), "end");
  }
}

const tip = el("div", {id: "tip"});
document.body.append(tip);

// Says what is under the pointer: text(x, y) in the picture's own units.
function pointed(svg, text) {
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    tip.textContent = text((event.clientX - box.left) * scale, (event.clientY - box.top) * scale) || "";
    tip.style.display = tip.textContent ? "block" : "none";
    tip.style.left = Math.max(0, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
  });
  svg.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  return svg;
}

const among = hits => (x, y) => hits.findLast(([left, top, wide, high]) =>
  x >= left && x <= left + Math.max(wide, 1) && y >= top && y <= top + high)?.[4];

/* ---------- a round ---------- */

async function opened(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

function gantt(round, width) {
  const left = width < 600 ? 100 : 128, right = width - 14, all = round.clusters;
  const end = Math.max(...all.map(c => c.phases.at(-1)?.[2] ?? 0), 1e-12), x = s => left + (right - left) * s / end;
  const height = c => c.slow ? 30 + c.elements.reduce((sum, [kind]) => sum + ROW[kind], 0) : 13;
  const foot = all.reduce((sum, c) => sum + height(c), 6), svg = sheet(width, foot + 34, "Gantt chart of the clusters' pipelines");
  svg.id = "gantt";
  const pattern = draw(draw(svg, "defs", {}), "pattern", {id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"});
  draw(pattern, "line", {x1: 0, y1: 0, x2: 0, y2: 7, stroke: "#cfcfcf", "stroke-width": 1.4});
  for (const t of ticks(0, end, (right - left) / 80)) {
    draw(svg, "line", {x1: x(t), x2: x(t), y1: 0, y2: foot, stroke: "#e8e8e8"});
    write(svg, x(t), foot + 13, short(t));
  }
  write(svg, (left + right) / 2, foot + 29, "time since the start of the round (s)");
  const hits = [];
  let top = 4, bars = 0;
  for (const c of all) {
    const big = c.slow, strip = big ? 15 : 10, steps = c.phases.filter(([label]) => label === "step").length;
    const bar = (from, to, y, high, more) => draw(svg, "rect", {x: x(from), y, width: Math.max(x(to) - x(from), 0.4), height: high, ...more});
    write(svg, left - 8, top + strip - 3, c.plays ? `${c.name}   ${short(c.delay)} s` : `${c.name} sits out`, "end", big ? 12 : 10, {"font-weight": big ? 600 : 400});
    let step = 0;
    for (const [label, from, to] of c.phases) {
      const name = label === "step" && steps > 1 ? `local step ${++step} of ${steps}` : D.phases[label][0];
      bar(from, to, top, strip, {fill: D.phases[label][1], stroke: "#fff", "stroke-width": 0.6, class: "phase"});
      hits.push([x(from), top, x(to) - x(from), strip, `${c.name}: ${name}\n${short(from)} to ${short(to)} s`]);
      if (big && x(to) - x(from) > 6.6 * name.length + 6) write(svg, x((from + to) / 2), top + 11.5, name);
    }
    top += strip + 1;
    if (!big) { top += 2; continue; }
    const rows = c.elements.map(([kind, node, label]) => {
      const computes = kind === "compute";
      if (computes) draw(svg, "rect", {x: left, y: top, width: right - left, height: ROW.compute, fill: "#f5f5f5"});
      if (computes) draw(svg, "rect", {x: left - 7, y: top + 2, width: 5, height: ROW.compute - 4, fill: colourOf(node)});
      write(svg, left - 11, top + ROW[kind] - 2, label, "end", computes ? 10 : 8, {class: computes ? "" : "faint"});
      top += ROW[kind];
      return top - ROW[kind];
    });
    const [element, pass, batch, gaps, lengths] = c.events, paths = new Map(), shades = Math.min(c.batches, 16);
    let now = 0, drawn = 0;
    element.forEach((i, j) => {
      now += gaps[j];
      const from = now * end / PARTS, to = (now + lengths[j]) * end / PARTS, share = shades > 1 ? Math.floor(batch[j] % c.batches * shades / c.batches) / (shades - 1) : 0.5;
      const [kind, , label] = c.elements[i], y = rows[i], wide = Math.max(x(to) - x(from), 0.5), inset = wide > 3 ? 0.3 : 0;
      const fill = shaded(PASSES[pass[j]], share), d = `M${(x(from) + inset).toFixed(2)} ${y + 1}h${(wide - 2 * inset).toFixed(2)}v${ROW[kind] - 2}h${(2 * inset - wide).toFixed(2)}z`;
      paths.set(fill, (paths.get(fill) ?? "") + d);
      hits.push([x(from), y, wide, ROW[kind], `${c.name}, ${label}: micro-batch ${batch[j]}, ${PASSES[pass[j]][0]}\n${short(from)} to ${short(to)} s`]);
      drawn = Math.max(drawn, to);
      bars++;
    });
    for (const [label, from, to] of c.phases) {
      const hatched = (label === "step" || label === "replay") && from >= drawn - 1e-4 * end;
      if (hatched) bar(from, to, rows[0], top - rows[0], {fill: "url(#hatch)"});
      else if (label !== "step" && label !== "wait") bar(from, to, rows[0], top - rows[0], {fill: D.phases[label][1], opacity: 0.2});
    }
    for (const [fill, d] of paths) draw(svg, "path", {d, fill});
    top += 14;
  }
  svg.dataset.bars = bars;
  return pointed(svg, among(hits));
}

// A cluster from above: its CU, the hops of its pipeline, and its devices, hollow without blocks, if they are there.
function map(detail, c) {
  const size = 170, middle = size / 2, half = Math.max(detail.side / 2, detail.reach ?? 0) * 1.08, hits = [];
  const svg = sheet(size, size + 18, `Map of ${c.name}`), plain = {fill: "none", stroke: "#bbb"};
  const at = node => node ? [middle * (1 + c.places[2 * node - 2] / half), middle * (1 - c.places[2 * node - 1] / half)] : [middle, middle];
  svg.classList.add("map");
  draw(svg, "rect", {x: 0.5, y: 0.5, width: size - 1, height: size - 1, ...plain});
  if (detail.reach) draw(svg, "circle", {cx: middle, cy: middle, r: detail.reach * middle / half, ...plain, "stroke-dasharray": "3 3"});
  const chain = [0, ...c.elements.filter(([kind]) => kind === "compute").map(([, node]) => node), 0];
  draw(svg, "polyline", {points: chain.map(node => at(node).join(" ")).join(" "), ...plain, stroke: "#a67db8", "stroke-width": 1.6});
  draw(svg, "rect", {x: middle - 4, y: middle - 4, width: 8, height: 8, fill: colourOf(0), transform: `rotate(45 ${middle} ${middle})`});
  c.there.forEach((there, k) => {
    const [cx, cy] = at(k + 1), stroke = colourOf(k + 1);
    if (!there) return;
    draw(svg, "circle", {cx, cy, r: 5, fill: c.blocks[k] ? stroke : "#fff", stroke, "stroke-width": 1.5, class: "device"});
    hits.push([cx - 7, cy - 7, 14, 14, `d${k}: ${c.blocks[k]} block${c.blocks[k] === 1 ? "" : "s"}`]);
  });
  write(svg, 0, size + 13, `${c.name}, ${short(2 * half)} m across`, "start");
  return pointed(svg, among(hits));
}

function nodeBars(round, key, title, line, most) {
  const all = round.clusters.flatMap(c => c[key].map((value, node) => ({value, node, name: `${c.name}, ${nameOf(node)}`, cluster: c.name})));
  const high = 120, left = 44, each = Math.min(34, (most - left - 6) / all.length), group = each * round.clusters[0][key].length;
  const right = left + each * all.length, svg = sheet(right + 6, high + 30, title), top = Math.max(line, ...all.map(a => a.value)) || 1;
  const y = v => 6 + high * (1 - v / top);
  svg.classList.add("nodes");
  scaleY(svg, 0, top, y, left, right);
  all.forEach(({value, node, cluster}, i) => {
    const x = left + i * each;
    draw(svg, "rect", {x, y: y(value), width: 0.82 * each, height: 6 + high - y(value), fill: colourOf(node)});
    if (!node && Math.round(x / group) % Math.ceil(26 / group) === 0) write(svg, x + group / 2, high + 20, cluster);
  });
  if (line) draw(svg, "line", {x1: left, x2: right, y1: y(line), y2: y(line), stroke: "#b3261e", "stroke-dasharray": "4 3"});
  pointed(svg, x => { const a = all[Math.floor((x - left) / each)]; return a && `${a.name}: ${short(a.value)}`; });
  return el("div", {}, el("h3", {}, title), svg);
}

/* ---------- charts over the rounds ---------- */

const hidden = new Set(), near = (xs, x) => xs.reduce((best, v, i) => Math.abs(v - x) < Math.abs(xs[best] - x) ? i : best, 0);
const along = s => state.seconds ? s.time : D.at, current = () => D.schedulers.find(s => s.name === D.details[state.who].name);

function chart(spec) {
  const width = Math.min(400, PAGE.clientWidth - 28), high = 150, left = 54, right = width - 20, svg = sheet(width, high + 40, spec.title);
  const shown = D.schedulers.filter(s => spec.lines[s.name] && !hidden.has(s.name)), values = shown.flatMap(s => spec.lines[s.name]).filter(Number.isFinite);
  let low = Math.min(...values, Infinity), top = Math.max(...values, -Infinity);
  if (low > 0 && low < 0.6 * top) low = 0;
  if (!(top - low > 1e-12)) [low, top] = values.length ? [low, low + Math.max(0.1 * Math.abs(low), 1e-6)] : [0, 1];
  const first = state.seconds ? 0 : 1, last = Math.max(first + 1e-9, state.seconds ? Math.max(...shown.map(s => s.time.at(-1)), 1e-9) : D.rounds);
  const X = v => left + (right - left) * (v - first) / (last - first), Y = v => 6 + high * (1 - (v - low) / (top - low));
  svg.classList.add("chart");
  svg.dataset.key = spec.key;
  scaleY(svg, low, top, Y, left, right);
  for (const t of ticks(first, last, 5)) if (state.seconds || Number.isInteger(t)) write(svg, X(t), high + 20, short(t));
  write(svg, (left + right) / 2, high + 35, state.seconds ? "simulated time (s)" : "round");
  for (const s of shown) {
    let d = "", pen = "M";
    spec.lines[s.name].forEach((v, i) => {
      if (Number.isFinite(v)) d += `${pen}${X(along(s)[i]).toFixed(1)} ${Y(v).toFixed(1)}`;
      pen = Number.isFinite(v) ? "L" : "M";
    });
    draw(svg, "path", {d, fill: "none", stroke: s.colour, "stroke-width": s === current() ? 2 : 1.2, class: "line"});
  }
  const now = draw(svg, "line", {y1: 6, y2: 6 + high, stroke: "#222", "stroke-width": 0.8, class: "now"});
  spec.mark = () => { const x = X(along(current())[near(D.at, state.round)]); now.setAttribute("x1", x); now.setAttribute("x2", x); };
  spec.mark();
  const back = x => first + (last - first) * (x - left) / (right - left);
  pointed(svg, x => [state.seconds ? `${short(back(x))} s` : `round ${short(D.at[near(D.at, back(x))])}`,
    ...shown.map(s => `${s.title}: ${short(spec.lines[s.name][near(along(s), back(x))]) || "no number"}`)].join("\n"));
  svg.onclick = event => {
    const box = svg.getBoundingClientRect(), x = back((event.clientX - box.left) * width / box.width);
    go({round: D.at[near(along(current()), x)]});
  };
  return el("div", {}, el("h3", {}, spec.title), svg);
}

/* ---------- tables ---------- */

function table({key, columns, rows}) {
  const words = columns.map((_, i) => rows.some(row => typeof row[i] === "string") ? "words" : ""), body = el("tbody"), head = el("tr");
  let sorted = -1, up = true;
  const cell = (v, i) => el("td", {class: words[i]}, typeof v === "string" ? v : short(v));
  const fill = () => body.replaceChildren(...rows.map(row => el("tr", {}, ...row.map(cell))));
  const sort = i => {
    up = sorted !== i || !up;
    sorted = i;
    rows.sort((a, b) => (a[i] === null) - (b[i] === null) || (up ? 1 : -1) * (words[i] ? String(a[i]).localeCompare(String(b[i])) : a[i] - b[i]));
    [...head.children].forEach((th, j) => {
      th.setAttribute("aria-sort", j !== i ? "none" : up ? "ascending" : "descending");
      th.lastChild.textContent = j !== i ? "" : up ? " ▲" : " ▼";
    });
    fill();
  };
  columns.forEach((name, i) => {
    const th = el("th", {class: words[i], tabindex: 0, scope: "col", "aria-sort": "none"}, name, el("span"));
    th.onclick = () => sort(i);
    th.onkeydown = event => { if (event.key === "Enter") sort(i); };
    head.append(th);
  });
  fill();
  return el("div", {class: "scroll", "data-table": key}, el("table", {}, el("thead", {}, head), body));
}

/* ---------- the page ---------- */

const state = {round: 1, who: 0, seconds: false, timer: 0, turn: 0}, $ = id => document.getElementById(id);

async function showRound() {
  const detail = D.details[state.who], turn = ++state.turn, i = Math.min(Math.round((state.round - 1) / detail.every), detail.rounds.length - 1);
  const at = near(D.at, state.round), number = 1 + i * detail.every;
  const value = key => short(D.charts.find(c => c.key === key)?.lines[detail.name]?.[at]) || "?";
  $("slider").value = state.round;
  $("label").textContent = `round ${state.round} of ${D.rounds}`;
  $("said").textContent = `${detail.title}, round ${state.round}: delay ${value("delay")} s, loss ${value("loss")} nat, energy ${value("energy")} J, ${value("backlog")} budgets in queues` + (number === state.round ? "" : `; the pipelines below are those of round ${number}`);
  D.charts.forEach(spec => spec.mark());
  const round = await opened(detail.rounds[i]);
  if (turn !== state.turn) return; // another round was asked for meanwhile
  const wide = PAGE.clientWidth - 2 * parseFloat(getComputedStyle(PAGE).paddingLeft), used = new Set(round.clusters.flatMap(c => c.phases.map(p => p[0])));
  const half = wide < 800 ? wide : wide / 2 - 12;
  $("phases").replaceChildren(...PASSES.slice(0, 2).map(pass => el("span", {}, swatch(shaded(pass, 0.5)), pass[0])),
    ...Object.entries(D.phases).filter(([name]) => used.has(name) && name !== "wait").map(([, [name, colour]]) => el("span", {}, swatch(colour), name)),
    el("span", {class: "long"}, "shades: micro-batches, the first one light; hatched: a local step that is not drawn in detail"));
  $("pipelines").replaceChildren(gantt(round, wide));
  $("beside").replaceChildren(
    nodeBars(round, "queue", "Energy queue of each node after the round (budgets)", 0, half),
    nodeBars(round, "energy", "Energy of each node in the round over a budget", round.allowance, half),
    el("div", {class: "key"}, ...round.clusters[0].queue.map((_, node) => el("span", {class: "node"}, swatch(colourOf(node)), nameOf(node)))),
    el("div", {}, el("h3", {}, round.clusters.length > 4 ? "The four slowest clusters" : "Clusters"),
      el("div", {class: "row"}, ...round.clusters.filter(c => c.slow).map(c => map(detail, c)))),
    el("div", {}, el("h3", {}, "Plan"), table({key: "clusters", columns: ["cluster", "delay (s)", "blocks of d0, d1, ...", "micro-batches", "uplink share (%)", "arrived (%)"],
      rows: round.clusters.map(c => [c.name, c.delay, c.blocks.join(" "), c.batches, c.uplink, c.arrived])})));
  document.documentElement.dataset.state = "ready";
}

const showCharts = () => $("charts").replaceChildren(...D.charts.map(chart));

function go(change) {
  Object.assign(state, change);
  state.round = Math.max(1, Math.min(D.rounds, Math.round(state.round) || 1));
  $("who").value = state.who;
  if ("who" in change || "seconds" in change) showCharts();
  const place = `#round=${state.round}&scheduler=${encodeURIComponent(D.details[state.who].name)}`;
  if (location.hash !== place) history.replaceState(null, "", place);
  showRound();
}

function asked() {
  const found = new URLSearchParams(location.hash.slice(1)), i = D.details.findIndex(d => d.name === found.get("scheduler"));
  return {round: Number(found.get("round")) || state.round, who: i < 0 ? state.who : i};
}

function stop() {
  clearInterval(state.timer);
  state.timer = 0;
  $("play").textContent = "▶ play";
}

function toggle() {
  if (state.timer) return stop();
  if (state.round >= D.rounds) go({round: 1});
  $("play").textContent = "❚❚ pause";
  state.timer = setInterval(() => state.round < D.rounds ? go({round: state.round + 1}) : stop(), 200);
}

const step = by => { stop(); go({round: state.round + by}); };
$("slider").max = D.rounds;
$("slider").oninput = event => step(Number(event.target.value) - state.round);
$("before").onclick = () => step(-1);
$("play").onclick = toggle;
$("next").onclick = () => step(1);
$("who").append(...D.details.map((d, i) => el("option", {value: i}, d.title)));
$("who").onchange = event => go({who: Number(event.target.value)});
$("axis").onchange = event => go({seconds: event.target.value === "s"});
addEventListener("hashchange", () => go(asked()));
addEventListener("resize", () => go({who: state.who}));
document.addEventListener("keydown", event => {
  const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -D.rounds, End: D.rounds};
  if (event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
  if (["TH", "BUTTON"].includes(event.target.tagName) && !event.key.startsWith("Arrow")) return;
  if (event.key in moves) step(moves[event.key]);
  else if (event.key === " ") toggle();
  else return;
  event.preventDefault();
});

for (const s of D.schedulers) {
  const made = el("button", {type: "button", "aria-pressed": "true"}, swatch(s.colour), s.title);
  made.onclick = () => {
    if (!hidden.delete(s.name)) hidden.add(s.name);
    made.setAttribute("aria-pressed", String(!hidden.has(s.name)));
    showCharts();
  };
  $("key").append(made);
}
$("title").textContent = D.title;
$("facts").append(...D.facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
$("tables").append(...D.tables.flatMap(spec => [el("h2", {}, spec.title), table(spec)]));
go(asked());
