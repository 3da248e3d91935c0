/* Questions: what each strategy found. The data has all of them, the document one page. */

const PAGE = 20;
const gold = data.dataset.gold === "document" ? "a passage of the right document" : "the gold passage";
const measures = [
  { label: "an answer in the first result", field: "rank", limit: 1 },
  { label: "an answer in the first 5 results", field: "rank", limit: 5 },
  { label: "an answer in the first 20 results", field: "rank", limit: 20 },
  { label: `${gold} first`, field: "gold_rank", limit: 1 },
  { label: `${gold} in the first 5`, field: "gold_rank", limit: 5 },
  ...[50, 100, 200, 500].map((limit) => ({ label: `an answer within ${limit} ${data.dataset.length_unit}`, field: "words", limit })),
].filter(({ field }) => field === "gold_rank" || !data.questions.length || data.questions.some(({ answers }) => answers.length));
const bands = { rank: [1, 5, 20], gold_rank: [1, 5, 20], words: [50, 100, 200, 500] };
const fields = { search: get("search"), measure: get("measure"), which: get("which"), order: get("order"), a: get("strategy-a"), b: get("strategy-b") };
const asked = data.questions.map((question, place) => ({ ...question, found: data.strategies.map(({ found }) => entryOf(found, place)) }));
const state = { matching: asked, page: 0 };

function entryOf({ rank, gold_rank, words, text, answer }, place) {
  return { rank: rank[place], gold_rank: gold_rank[place], words: words[place], text: text[place], answer: answer[place] };
}

measures.forEach(({ label }, number) => fields.measure.add(new Option(label, number)));
data.strategies.forEach(({ name }, number) => {
  fields.a.add(new Option(name, number));
  fields.b.add(new Option(name, number));
});
const firstOther = data.strategies.findIndex(({ ours }) => !ours);
fields.b.selectedIndex = firstOther > 0 ? firstOther : data.strategies.length - 1;

const folded = (text) => text.normalize("NFKC").toLowerCase();
let haystacks = null; // case-folded texts, made at the first search

function matches(wanted) {
  haystacks ??= {
    questions: asked.map((item) => folded([item.id, item.question, item.document, ...item.answers].join("\n"))),
    texts: data.texts.map((parts) => folded(parts.join("\n"))),
  };
  const texts = haystacks.texts.map((text) => text.includes(wanted));
  return (item, place) => haystacks.questions[place].includes(wanted) || item.found.some((entry) => texts[entry.text]);
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
  const listed = (entries) => entries.filter((_, strategy) => isListed(strategy));
  const ofAll = ["disagree", "none"].includes(fields.which.value);
  state.matching = asked.filter((item, place) => kept(ofAll ? listed(item.found) : item.found) && searched(item, place));
  if (fields.order.value === "disputed") {
    const dispute = ({ found: entries }) => { // how many strategies would have to change sides for all to agree
      const there = listed(entries);
      const finding = there.filter(found).length;
      return Math.min(finding, there.length - finding);
    };
    const disputes = new Map(state.matching.map((item) => [item, dispute(item)]));
    state.matching.sort((one, two) => disputes.get(two) - disputes.get(one));
  }
  turnTo(0);
}

function turnTo(page) {
  const pages = Math.max(1, Math.ceil(state.matching.length / PAGE));
  state.page = Math.min(Math.max(page, 0), pages - 1);
  const from = state.page * PAGE;
  const number = (value) => value.toLocaleString("en");
  get("matching").textContent = `${number(state.matching.length)} of ${number(asked.length)} questions`;
  get("page-number").textContent = `page ${number(state.page + 1)} of ${number(pages)}`;
  for (const button of all("[data-page]")) {
    button.disabled = ["first", "previous"].includes(button.dataset.page) ? state.page === 0 : state.page === pages - 1;
  }
  get("open-all").disabled = state.matching.length === 0;
  get("question-list").replaceChildren(...state.matching.slice(from, from + PAGE).map(questionItem));
}

function questionItem(item) {
  const answers = make("p", { className: "answers", textContent: item.answers.length ? "Answer: " : "No answer given" });
  item.answers.forEach((answer, place) => {
    answers.append(place ? " / " : "", make("b", { textContent: answer, lang: data.dataset.language }));
  });
  answers.append(` · ${[item.document, item.id].filter(Boolean).join(" · ")}`);
  const details = make("details", {}, make("summary", { textContent: "What each found first" }));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(...hits(item));
  });
  const title = make("h3", { textContent: item.question, lang: data.dataset.language });
  return make("li", {}, title, answers, outcome(item), details);
}

/** The strategies grouped by how early they found the answer, by the chosen measure. */
function outcome(item) {
  const { field, limit } = measures[fields.measure.value];
  const groups = new Map();
  item.found.forEach((entry, strategy) => {
    if (!isListed(strategy)) return;
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
  if (key === bounds.length) return field === "words" ? `after ${last}` : `after the ${last}th`;
  if (field === "words") return key === 0 ? `within ${bounds[0]}` : `${bounds[key - 1] + 1} to ${bounds[key]}`;
  return key === 0 ? "first" : key === 1 ? "2nd to 5th" : "6th to 20th";
}

function chip(strategy, more = "") {
  const { name, ours } = data.strategies[strategy];
  return make("span", { className: ours ? "chip ours" : "chip", textContent: name + more });
}

/** The answers, then the first results: each text once, with the strategies that found it. */
function hits(item) {
  const groups = new Map();
  item.found.forEach((entry, strategy) => {
    if (isListed(strategy)) groups.set(entry.text, [...(groups.get(entry.text) ?? []), strategy]);
  });
  const said = item.found.flatMap(({ answer }, strategy) => (answer && isListed(strategy) ? [make("div", { className: "hit" },
    make("p", { lang: data.dataset.language }, ...marked(answer, item.answers)), make("p", { className: "by" }, chip(strategy, ": answered")))] : []));
  return said.concat([...groups].map(([number, strategies]) => {
    const [text, source, unit] = data.texts[number];
    const chips = strategies.map((strategy) => chip(strategy, `: ${inWords(item.found[strategy])}`));
    const body = make("p", { lang: data.dataset.language });
    if (text) body.append(...marked(text, item.answers));
    else body.textContent = "Nothing.";
    const by = unit ? [make("p", { className: "unit" }, "Found by: ", make("span", { lang: data.dataset.language }, ...marked(unit, item.answers)))] : [];
    return make("div", { className: "hit" }, ...by, body,
      make("p", { className: "source", textContent: source }), make("p", { className: "by" }, ...chips));
  }));
}

function inWords({ rank, gold_rank: right, words: length }) {
  const parts = [rank === null ? "no answer found" : `answer in result ${rank}`];
  if (right !== null) parts.push(`${data.dataset.gold === "document" ? "right document" : "gold"} in ${right}`);
  if (length !== null) parts.push(`after ${length.toLocaleString("en")} ${data.dataset.length_unit}`);
  return parts.join(", ");
}

function marked(text, answers) {
  const joined = ["ja", "zh", "th", "lo", "km", "my"].includes(data.dataset.language); // answers may stand anywhere, whatever the spaces
  const escape = (part) => part.replace(/[\\^$.*+?()[\]{}|\/]/g, "\\$&");
  const patterns = answers.filter((answer) => answer.trim()).map((answer) => {
    const parts = joined ? [...answer.replace(/\s/g, "")] : answer.trim().split(/\s+/);
    return parts.map(escape).join(joined ? "\\s*" : "\\s+");
  });
  if (!patterns.length) return [text];
  patterns.sort((one, two) => two.length - one.length); // if one answer contains another, the longer one is marked
  const whole = joined || data.dataset.language === "ko" ? ["", ""] : ["(?<![\\p{L}\\p{N}])", "(?![\\p{L}\\p{N}])"];
  return text.split(new RegExp(`${whole[0]}(${patterns.join("|")})${whole[1]}`, "giu"))
    .map((part, place) => (place % 2 ? make("mark", { textContent: part }) : part));
}

let waiting = 0;
fields.search.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(filter, 150);
});
for (const field of [fields.measure, fields.which, fields.order, fields.a, fields.b]) field.addEventListener("change", filter);
get("filters").addEventListener("submit", (event) => event.preventDefault());
for (const button of all("[data-page]")) {
  const target = { first: () => 0, previous: () => state.page - 1, next: () => state.page + 1, last: () => Infinity };
  button.addEventListener("click", () => {
    turnTo(target[button.dataset.page]());
    get("questions").scrollIntoView();
  });
}
get("all-strategies")?.addEventListener("click", filter);
get("open-all").addEventListener("click", () => all("#question-list details").forEach((details) => { details.open = true; }));
filter();
