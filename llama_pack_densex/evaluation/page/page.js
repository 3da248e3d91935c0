"use strict";
// Texts from documents and questions are put in by textContent and never by innerHTML.
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* Tables: a head's button sorts, best first; once more turns the order, once more gives back the first one. */

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
    if (a === "" || b === "") return (a === "") - (b === ""); // what is not given comes last either way
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

/* The plot of answer recall: lines are hidden by the legend, values are read off by mouse, finger or slider. */

const plots = get("curve-plots");
const drawings = all("svg.plot", plots).filter((plot) => plot.dataset.left);
const buttons = all("#legend button");
const slider = get("length");
const tip = get("tip");
const share = (value) => (value === null ? "–" : value.toFixed(3));
const shown = (strategy) => buttons[strategy].getAttribute("aria-pressed") === "true";
const within = (place) => `${data.lengths[place].toLocaleString("en")} ${data.unit}`;

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
  for (const plot of drawings) {
    const { left, right, top, bottom } = plot.dataset;
    const x = Number(left) + ((right - left) * data.lengths[place]) / Math.max(...data.lengths);
    plot.querySelector(".crosshair").setAttribute("d", `M${x} ${top}V${bottom}`);
  }
}

function point(strategy) {
  plots.classList.toggle("pointed", strategy !== null);
  all(".series", plots).forEach((part) => part.classList.toggle("near", Number(part.dataset.strategy) === strategy));
}

function hover(event) {
  const plot = event.currentTarget;
  const box = plot.getBoundingClientRect();
  const scale = plot.viewBox.baseVal.width / box.width;
  const { left, right, top, bottom, low } = Object.fromEntries(Object.entries(plot.dataset).map(([k, v]) => [k, Number(v)]));
  const length = (((event.clientX - box.left) * scale - left) / (right - left)) * Math.max(...data.lengths);
  const place = nearest(data.lengths.map((at) => Math.abs(at - length)));
  const value = low + ((bottom - (event.clientY - box.top) * scale) / (bottom - top)) * (1 - low);
  const strategy = nearest(data.strategies.map(({ curve }, number) => {
    return shown(number) && curve[place] !== null ? Math.abs(curve[place] - value) : Infinity;
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

for (const plot of drawings) {
  all("title", plot).forEach((title) => title.remove()); // the tooltips of the drawing alone: here is a better one
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("class", "crosshair");
  plot.insertBefore(line, plot.querySelector(".series"));
  plot.addEventListener("pointermove", hover);
  plot.addEventListener("pointerdown", hover);
  plot.addEventListener("pointerleave", leave);
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
readAt(Number(slider.value));

const fromZero = get("from-zero");
if (all("[data-drawing]", plots).length < 2) fromZero.closest("label").remove(); // it begins at 0 already
fromZero.addEventListener("change", () => {
  for (const drawing of all("[data-drawing]", plots)) drawing.hidden = (drawing.dataset.drawing === "whole") !== fromZero.checked;
});
