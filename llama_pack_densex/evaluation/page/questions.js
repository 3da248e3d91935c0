/* Questions: what each strategy found. All are in the data, one page of them in the document. */

const PAGE = 20;
const [ID, QUESTION, ANSWERS, DOCUMENT, FOUND] = [0, 1, 2, 3, 4];
const [RANK, GOLD, LENGTH, TEXT] = [0, 1, 2, 3];
const measures = [
  { label: "an answer in the first result", field: RANK, limit: 1 },
  { label: "an answer in the first 5 results", field: RANK, limit: 5 },
  { label: "an answer in the first 20 results", field: RANK, limit: 20 },
  { label: "the gold passage first", field: GOLD, limit: 1 },
  { label: "the gold passage in the first 5", field: GOLD, limit: 5 },
  ...[50, 100, 200, 500].map((limit) => ({ label: `an answer within ${limit} ${data.unit}`, field: LENGTH, limit })),
];
const bands = { [RANK]: [1, 5, 20], [GOLD]: [1, 5, 20], [LENGTH]: [50, 100, 200, 500] };
const fields = { search: get("search"), measure: get("measure"), which: get("which"), a: get("strategy-a"), b: get("strategy-b") };
const state = { matching: data.questions, page: 0 };

measures.forEach(({ label }, number) => fields.measure.add(new Option(label, number)));
data.strategies.forEach(({ name }, number) => {
  fields.a.add(new Option(name, number));
  fields.b.add(new Option(name, number));
});
const firstOther = data.strategies.findIndex(({ ours }) => !ours);
fields.b.selectedIndex = firstOther > 0 ? firstOther : data.strategies.length - 1;

const folded = (text) => text.normalize("NFKC").toLowerCase();
let haystacks = null; // folded once, when first searched

function matches(wanted) {
  haystacks ??= {
    questions: data.questions.map((item) => folded([item[ID], item[QUESTION], item[DOCUMENT], ...item[ANSWERS]].join("\n"))),
    texts: data.texts.map(([text, source]) => folded(`${text}\n${source}`)),
  };
  const texts = haystacks.texts.map((text) => text.includes(wanted));
  return (item, place) => haystacks.questions[place].includes(wanted) || item[FOUND].some((entry) => texts[entry[TEXT]]);
}

function filter() {
  const wanted = folded(fields.search.value.trim());
  const measure = measures[fields.measure.value];
  const [a, b] = [Number(fields.a.value), Number(fields.b.value)];
  const found = (entry) => entry[measure.field] !== null && entry[measure.field] <= measure.limit;
  const kept = {
    all: () => true,
    disagree: (entries) => entries.some(found) && !entries.every(found),
    none: (entries) => !entries.some(found),
    fails: (entries) => !found(entries[a]),
    differ: (entries) => found(entries[a]) !== found(entries[b]),
    wins: (entries) => found(entries[a]) && !found(entries[b]),
  }[fields.which.value];
  fields.a.disabled = !["fails", "differ", "wins"].includes(fields.which.value);
  fields.b.disabled = !["differ", "wins"].includes(fields.which.value);
  const searched = wanted ? matches(wanted) : () => true;
  state.matching = data.questions.filter((item, place) => kept(item[FOUND]) && searched(item, place));
  turnTo(0);
}

function turnTo(page) {
  const pages = Math.max(1, Math.ceil(state.matching.length / PAGE));
  state.page = Math.min(Math.max(page, 0), pages - 1);
  const from = state.page * PAGE;
  const number = (value) => value.toLocaleString("en");
  get("matching").textContent = `${number(state.matching.length)} of ${number(data.questions.length)} questions`;
  get("page-number").textContent = `page ${number(state.page + 1)} of ${number(pages)}`;
  for (const button of all("[data-page]")) {
    button.disabled = ["first", "previous"].includes(button.dataset.page) ? state.page === 0 : state.page === pages - 1;
  }
  get("open-all").disabled = state.matching.length === 0;
  get("question-list").replaceChildren(...state.matching.slice(from, from + PAGE).map(questionItem));
}

function questionItem(item) {
  const answers = make("p", { className: "answers", textContent: item[ANSWERS].length ? "Answer: " : "No answer given" });
  item[ANSWERS].forEach((answer, place) => {
    answers.append(place ? " / " : "", make("b", { textContent: answer, lang: data.language }));
  });
  answers.append(` · ${[item[DOCUMENT], item[ID]].filter(Boolean).join(" · ")}`);
  const details = make("details", {}, make("summary", { textContent: "What each found first" }));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(...hits(item));
  });
  const title = make("h3", { textContent: item[QUESTION], lang: data.language });
  return make("li", {}, title, answers, outcome(item), details);
}

/** The strategies under how early they found it, by the chosen measure. */
function outcome(item) {
  const { field, limit } = measures[fields.measure.value];
  const groups = new Map();
  item[FOUND].forEach((entry, strategy) => {
    const value = entry[field];
    const band = value === null ? Infinity : bands[field].findIndex((bound) => value <= bound);
    const key = band === -1 ? bands[field].length : band;
    groups.set(key, [...(groups.get(key) ?? []), strategy]);
  });
  const list = make("dl", { className: "outcome" });
  for (const key of [...groups.keys()].sort((one, two) => one - two)) {
    const missed = !(bands[field][key] <= limit);
    const term = make("dt", { textContent: `${missed ? "○" : "●"} ${bandName(field, key)}` });
    list.append(term, make("dd", { className: missed ? "missed" : "" }, ...groups.get(key).map((strategy) => chip(strategy))));
  }
  return list;
}

function bandName(field, key) {
  const bounds = bands[field];
  if (key === Infinity) return "not found";
  const last = bounds[bounds.length - 1];
  if (key === bounds.length) return field === LENGTH ? `after ${last}` : `after the ${last}th`;
  if (field === LENGTH) return key === 0 ? `within ${bounds[0]}` : `${bounds[key - 1] + 1} to ${bounds[key]}`;
  return key === 0 ? "first" : key === 1 ? "2nd to 5th" : "6th to 20th";
}

function chip(strategy, more = "") {
  const { name, ours } = data.strategies[strategy];
  return make("span", { className: ours ? "chip ours" : "chip", textContent: name + more });
}

/** What was found first, each text once, with the strategies that found it. */
function hits(item) {
  const groups = new Map();
  item[FOUND].forEach((entry, strategy) => groups.set(entry[TEXT], [...(groups.get(entry[TEXT]) ?? []), strategy]));
  return [...groups].map(([number, strategies]) => {
    const [text, source] = data.texts[number];
    const chips = strategies.map((strategy) => chip(strategy, `: ${inWords(item[FOUND][strategy])}`));
    const body = make("p", { lang: data.language });
    if (text) body.append(...marked(text, item[ANSWERS]));
    else body.textContent = "Nothing.";
    return make("div", { className: "hit" }, body,
      make("p", { className: "source", textContent: source }), make("p", { className: "by" }, ...chips));
  });
}

function inWords([rank, gold, length]) {
  const parts = [rank === null ? "no answer found" : `answer in result ${rank}`];
  if (gold !== null) parts.push(`gold in ${gold}`);
  if (length !== null) parts.push(`after ${length.toLocaleString("en")} ${data.unit}`);
  return parts.join(", ");
}

function marked(text, answers) {
  const escaped = answers.filter((answer) => answer.trim()).map((answer) => answer.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  if (!escaped.length) return [text];
  escaped.sort((one, two) => two.length - one.length); // of answers that contain each other the longest is marked
  return text.split(new RegExp(`(${escaped.join("|")})`, "giu"))
    .map((part, place) => (place % 2 ? make("mark", { textContent: part }) : part));
}

let waiting = 0;
fields.search.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(filter, 150);
});
for (const field of [fields.measure, fields.which, fields.a, fields.b]) field.addEventListener("change", filter);
get("filters").addEventListener("submit", (event) => event.preventDefault());
for (const button of all("[data-page]")) {
  const target = { first: () => 0, previous: () => state.page - 1, next: () => state.page + 1, last: () => Infinity };
  button.addEventListener("click", () => {
    turnTo(target[button.dataset.page]());
    get("questions").scrollIntoView();
  });
}
get("open-all").addEventListener("click", () => all("#question-list details").forEach((details) => { details.open = true; }));
filter();
