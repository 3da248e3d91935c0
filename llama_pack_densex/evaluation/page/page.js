"use strict";
// Texts from documents and questions are inserted by textContent, never by innerHTML.
const data = JSON.parse(document.getElementById("data").textContent);
for (const strategy of data.strategies) {
  const keys = data.settings.lengths.map((length) => `answer_recall@${length}`);
  strategy.curve = keys.map((key) => strategy.metrics[key] ?? null);
  strategy.bounds = keys.map((key) => strategy.intervals[key]);
}
const get = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* At first a few strategies are shown; a click shows all. Table rows of the others have data-other. */

let few = data.strategies.some(({ other }) => other);
const isListed = (strategy) => !few || !data.strategies[strategy].other;
document.body.classList.toggle("few", few);
get("all-strategies")?.addEventListener("click", ({ target }) => {
  few = !few;
  document.body.classList.toggle("few", few);
  target.setAttribute("aria-pressed", String(!few));
  target.textContent = few ? `Show all ${data.strategies.length} strategies` : "Show fewer strategies";
  drawCurves();
  all("[data-bars]").forEach(drawBars);
});

/* Tables: a header's button sorts, best first; a second click reverses the order, a third one restores the original. */

function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const other = { ascending: "descending", descending: "ascending" };
  for (const button of all("thead button", table)) {
    const head = button.closest("th");
    const first = button.dataset.first === "text" ? "ascending" : button.dataset.first;
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const next = now === "none" ? first : now === first ? other[first] : "none";
      all("th[aria-sort]", table).forEach((any) => any.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      const column = Number(button.dataset.column);
      body.append(...(next === "none" ? original : sorted(original, column, next === "ascending" ? 1 : -1)));
    });
  }
}

function sorted(rows, column, sign) {
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  return [...rows].sort((one, two) => {
    const [a, b] = [value(one), value(two)];
    if (a === "" || b === "") return (a === "") - (b === ""); // missing values come last in either order
    const [x, y] = [Number(a), Number(b)];
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
  });
}

all("table").filter((table) => table.querySelector("thead button")).forEach(sortable);
get("intervals").addEventListener("change", (event) => {
  get("metrics").classList.toggle("with-intervals", event.target.checked);
});

for (const choice of all("select[data-rows-of]")) {
  const show = () => {
    for (const row of get(choice.dataset.rowsOf).tBodies[0].rows) {
      row.hidden = choice.value !== "" && row.dataset.choice !== choice.value;
    }
  };
  choice.selectedIndex = 1;
  choice.addEventListener("change", show);
  show();
}

/* How strategies are drawn: they differ by colour (page.css), and also by dashes and markers; ours are solid. */

const DASHES = ["6 3", "2 2", "9 3 2 3", "12 4", "4 2 1 2", "1 3", "8 2 2 2 2 2"];
const MARKERS = [
  "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0Z", // circle
  "M-.9 -.9H.9V.9H-.9Z", // square
  "M0 -1.2L1.1 .8H-1.1Z", // triangle
  "M0 -1.3L1.2 0L0 1.3L-1.2 0Z", // diamond
  "M0 1.2L1.1 -.8H-1.1Z", // triangle, upside down
  "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z", // plus
  "M0 -1.2L1.1 -.4L.7 1H-.7L-1.1 -.4Z", // pentagon
];
const seen = { true: 0, false: 0 };
const looks = data.strategies.map(({ ours }) => {
  const place = seen[ours]++;
  const turn = place + Math.floor(place / 8); // seven markers and eight colours: pairs repeat after 56
  return { ours, colour: (ours ? 0 : 8) + (place % 8), dash: ours ? null : DASHES[turn % 7], marker: MARKERS[turn % 7] };
});
const pen = document.createElement("canvas").getContext("2d");
pen.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
const share = (value) => (value === null ? "–" : value.toFixed(3));

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function letters(x, y, text, anchor, kind) {
  return draw("text", { class: kind, x, y, "text-anchor": anchor }, text);
}

function lineOf({ ours, dash }, points, more = {}) {
  const d = `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
  return draw("path", { ...more, d, fill: "none", stroke: "currentColor", "stroke-width": ours ? 2.6 : 1.4, "stroke-dasharray": dash });
}

function markerOf({ ours, marker }, x, y) {
  return draw("path", {
    class: ours ? "filled" : "hollow", d: marker, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(3.4)`,
    stroke: "currentColor", "stroke-width": 1.3, "vector-effect": "non-scaling-stroke",
  });
}

function canvas(width, height, label, ...children) {
  const ground = draw("rect", { class: "ground", width, height });
  return draw("svg", { class: "plot", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height }, ground, ...children);
}

function shortened(text, room) {
  let kept = text;
  while (kept && pen.measureText(kept === text ? text : `${kept}…`).width > room) kept = kept.slice(0, -1);
  return kept === text ? text : `${kept.trimEnd()}…`;
}

for (const swatch of all("[data-swatch]")) {
  const look = looks[swatch.dataset.swatch];
  swatch.classList.add(`look-${look.colour}`);
  swatch.append(lineOf(look, [[0, 6], [30, 6]]), markerOf(look, 15, 6));
}

/* The plot of answer recall: lines are hidden by the legend, values are read off by mouse, finger or slider. */

const plots = get("curve-plots");
const buttons = all("#legend button");
const slider = get("length");
const tip = get("tip");
const fromZero = get("from-zero");
const longest = Math.max(...data.settings.lengths, 0);
const measured = longest > 0 && data.strategies.some(({ curve }) => curve.some((value) => value !== null));
const shown = (strategy) => buttons[strategy].getAttribute("aria-pressed") === "true";
const within = (place) => `${data.settings.lengths[place].toLocaleString("en")} ${data.dataset.length_unit}`;
let frame = null; // of the current plot: its element, and the positions of its axes

/** Where the axis begins if not at 0: below the values at two fifths of the largest l, to separate close lines. */
function startOfAxis() {
  const place = data.settings.lengths.findIndex((length) => length >= longest * 0.4);
  const values = data.strategies.map(({ curve }) => curve[place]).filter((value) => value !== null && value !== undefined);
  return values.length ? Math.min(0.9, Math.floor(Math.min(...values) * 10) / 10) : 0;
}

function drawCurves() {
  const width = Math.min(1100, Math.max(280, Math.round(plots.clientWidth)));
  plots.querySelector("svg")?.remove();
  if (!measured) return;
  const labels = width >= 560;
  const height = labels ? 540 : 330;
  const low = fromZero.checked ? 0 : startOfAxis();
  const room = labels ? Math.min(240, 48 + Math.max(...data.strategies.map(({ name }) => pen.measureText(name).width))) : 14;
  const [left, right, top, bottom] = [44, width - room, 14, height - 44];
  const across = (length) => left + ((right - left) * length) / longest;
  const down = (value) => bottom - ((bottom - top) * (value - low)) / (1 - low);
  const clip = draw("clipPath", { id: "above" }, draw("rect", { x: left - 9, y: 0, width: right - left + 18, height: bottom }));
  const crosshair = draw("path", { class: "crosshair" });
  const axes = draw("g", {}, ...axesOf(across, down, low, { left, right, top, bottom }));
  axes.append(letters((left + right) / 2, height - 8, `${data.dataset.length_unit} of context read (l)`, "middle", "soft"));
  const lines = data.strategies.flatMap(({ curve }, strategy) => {
    const points = curve.map((value, place) => [data.settings.lengths[place], value]).filter(([, value]) => value !== null);
    if (!points.length || !isListed(strategy)) return [];
    const clipped = lineOf(looks[strategy], points.map(([x, y]) => [across(x), down(y)]), { "clip-path": "url(#above)" });
    const markers = points.filter(([, y]) => y >= low).map(([x, y]) => markerOf(looks[strategy], across(x), down(y)));
    return [series("line", strategy, clipped, ...markers)];
  });
  const title = `Answer recall by ${data.dataset.length_unit} of context, ${lines.length} strategies`;
  const plot = canvas(width, height, title, draw("defs", {}, clip), axes, crosshair, ...lines);
  if (labels) plot.append(...endLabels(across, down, low, { right, top, bottom }, room));
  for (const kind of ["pointermove", "pointerdown"]) plot.addEventListener(kind, hover);
  plot.addEventListener("pointerleave", leave);
  plots.prepend(plot);
  frame = { plot, crosshair, left, right, top, bottom, low, width };
  data.strategies.forEach((_, strategy) => showLine(strategy, shown(strategy)));
  readAt(Number(slider.value));
}

function series(kind, strategy, ...parts) {
  const { ours, colour } = looks[strategy];
  return draw("g", { class: `series ${kind} look-${colour}${ours ? " ours" : ""}`, "data-strategy": strategy }, ...parts);
}

function axesOf(across, down, low, { left, right, top, bottom }) {
  const parts = [];
  const step = low < 0.7 ? 0.1 : 0.05;
  for (let place = 0; place <= Math.round((1 - low) / step); place += 1) {
    const level = low + step * place;
    parts.push(draw("path", { class: "grid", d: `M${left} ${down(level).toFixed(1)}H${right}` }));
    parts.push(letters(left - 8, down(level) + 4, String(Number(level.toFixed(2))).padEnd(3, level % 1 ? "0" : ".0"), "end", "soft"));
  }
  const every = Math.max(1, Math.ceil((data.settings.lengths.length - 1) / Math.max(1, (right - left) / 56)));
  for (const length of data.settings.lengths.filter((_, place) => place % every === 0)) {
    parts.push(draw("path", { class: "axis", d: `M${across(length)} ${bottom}v5` }));
    parts.push(letters(across(length), bottom + 19, length.toLocaleString("en"), "middle", "soft"));
  }
  parts.push(draw("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }));
  return parts;
}

/** The names beside the lines' ends, moved apart where they would overlap. */
function endLabels(across, down, low, { right, top, bottom }, room) {
  const ends = data.strategies.flatMap(({ curve }, strategy) => {
    const last = curve.findLastIndex((value) => value !== null);
    return last < 0 || !isListed(strategy) ? [] : [{ strategy, x: across(data.settings.lengths[last]), y: down(Math.max(curve[last], low)) }];
  }).sort((one, two) => one.y - two.y);
  const gap = Math.min(14, (bottom - top) / Math.max(1, ends.length - 1));
  let before = top - gap;
  for (const end of ends) before = end.at = Math.max(end.y, before + gap);
  let after = bottom + gap;
  for (const end of ends.toReversed()) after = end.at = Math.min(end.at, after - gap);
  return ends.map(({ strategy, x, y, at }) => series("label", strategy,
    draw("path", { class: "leader", d: `M${x + 6} ${y}L${right + 36} ${at}` }),
    letters(right + 39, at + 4, shortened(data.strategies[strategy].name, room - 44), "start", "ink")));
}

function showLine(strategy, visible) {
  buttons[strategy].setAttribute("aria-pressed", String(visible));
  all(`.series[data-strategy="${strategy}"]`, plots).forEach((part) => part.classList.toggle("off", !visible));
}

function readAt(place) {
  slider.value = place;
  slider.setAttribute("aria-valuetext", within(place));
  get("at-length").textContent = within(place);
  buttons.forEach((button, strategy) => {
    button.querySelector("output").textContent = share(data.strategies[strategy].curve[place]);
  });
  if (!frame) return;
  const x = frame.left + ((frame.right - frame.left) * data.settings.lengths[place]) / longest;
  frame.crosshair.setAttribute("d", `M${x} ${frame.top}V${frame.bottom}`);
}

function point(strategy) {
  plots.classList.toggle("pointed", strategy !== null);
  all(".series", plots).forEach((part) => part.classList.toggle("near", Number(part.dataset.strategy) === strategy));
}

function hover(event) {
  const box = frame.plot.getBoundingClientRect();
  const scale = frame.width / box.width;
  const { left, right, top, bottom, low } = frame;
  const length = (((event.clientX - box.left) * scale - left) / (right - left)) * longest;
  const place = nearest(data.settings.lengths.map((at) => Math.abs(at - length)));
  const value = low + ((bottom - (event.clientY - box.top) * scale) / (bottom - top)) * (1 - low);
  const strategy = nearest(data.strategies.map(({ curve }, number) => {
    return shown(number) && isListed(number) && curve[place] !== null ? Math.abs(curve[place] - value) : Infinity;
  }));
  readAt(place);
  if (strategy === -1) return leave();
  point(strategy);
  const { name, curve, bounds } = data.strategies[strategy];
  const interval = bounds[place] ? ` (${share(bounds[place][0])}–${share(bounds[place][1])})` : "";
  tip.replaceChildren(make("b", { textContent: name }), make("br"), `${within(place)}: ${share(curve[place])}${interval}`);
  tip.hidden = false;
  const area = plots.getBoundingClientRect();
  const beside = event.clientX - area.left;
  tip.style.left = `${Math.max(0, beside > area.width / 2 ? beside - tip.offsetWidth - 14 : beside + 14)}px`;
  tip.style.top = `${Math.max(0, event.clientY - area.top - tip.offsetHeight - 8)}px`;
}

function nearest(distances) {
  const least = Math.min(...distances);
  return Number.isFinite(least) ? distances.indexOf(least) : -1;
}

function leave() {
  tip.hidden = true;
  point(null);
}

buttons.forEach((button, strategy) => {
  button.addEventListener("click", () => showLine(strategy, !shown(strategy)));
  for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => shown(strategy) && point(strategy));
  for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => point(null));
});
for (const button of all("[data-show]")) {
  const wanted = { all: () => true, none: () => false, ours: ({ ours }) => ours, others: ({ ours }) => !ours };
  button.addEventListener("click", () => {
    data.strategies.forEach((strategy, number) => showLine(number, wanted[button.dataset.show](strategy)));
  });
}
slider.addEventListener("input", () => readAt(Number(slider.value)));
slider.value = nearest(data.settings.lengths.map((length) => Math.abs(length - 100)));
if (startOfAxis() === 0) fromZero.closest("label").remove(); // it begins at 0 anyway
fromZero.addEventListener("change", drawCurves);
if (!measured) for (const part of all("#recall-by-words, nav [href='#recall-by-words']")) part.hidden = true;

/* Bars: a metric at each k, with confidence intervals as whiskers. */

function drawBars(place) {
  const strategies = data.strategies.filter((_, strategy) => isListed(strategy));
  const keys = data.bars[place.dataset.bars];
  const width = Math.min(1100, Math.max(280, Math.round(place.clientWidth)));
  const beside = width < 640 ? 1 : keys.length;
  const [row, head] = [20, 30];
  const names = Math.min(210, 24 + Math.max(...strategies.map(({ name }) => pen.measureText(name).width)));
  const panel = { width: (width - names - 10) / beside, height: head + row * strategies.length + 14 };
  const parts = keys.flatMap((key, number) => {
    const left = names + panel.width * (number % beside);
    const top = panel.height * Math.floor(number / beside);
    return [letters(left, top + 18, key, "start", "ink strong"), ...strategies.flatMap((strategy, line) => {
      const middle = top + head + row * line + row / 2;
      const bar = barOf(strategy, key, left, middle, panel.width - 62);
      if (number % beside) return [bar];
      const kind = strategy.ours ? "ink strong" : "ink";
      return [letters(names - 10, middle + 4, shortened(strategy.name, names - 20), "end", kind), bar];
    })];
  });
  const title = `${place.dataset.bars}@k of ${strategies.length} strategies, with intervals`;
  place.replaceChildren(canvas(width, panel.height * Math.ceil(keys.length / beside), title, ...parts));
}

function barOf({ name, ours, metrics, intervals }, key, left, middle, full) {
  const value = metrics[key] ?? null;
  const [low, high] = intervals[key] ?? [];
  if (value === null) return letters(left, middle + 4, "– not given", "start", "soft");
  const bar = { x: left, y: middle - 7, height: 14 };
  const [start, end] = [left + full * (low ?? value), left + full * (high ?? value)];
  const whisker = `M${start} ${middle - 4}v8M${start} ${middle}H${end}M${end} ${middle - 4}v8`;
  return draw("g", {},
    draw("title", {}, `${name}, ${key}: ${share(value)} (${share(low ?? value)} to ${share(high ?? value)})`),
    draw("rect", { class: "bar-room", ...bar, width: full }),
    draw("rect", { class: ours ? "bar-ours" : "bar-other", ...bar, width: full * value }),
    draw("path", { class: "whisker-ground", d: whisker }), draw("path", { class: "whisker", d: whisker }),
    letters(left + full + 8, middle + 4, share(value), "start", "ink"));
}

/* Each plot is as wide as the room for it, and is redrawn when that changes. */

const widths = new Map();
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (widths.get(target) === target.clientWidth) continue;
    widths.set(target, target.clientWidth);
    target === plots ? drawCurves() : drawBars(target);
  }
});
for (const place of [plots, ...all("[data-bars]")]) {
  place === plots ? drawCurves() : drawBars(place);
  widths.set(place, place.clientWidth);
  resized.observe(place);
}
