// The page: a conversation with sources, and a search. Everything from the server becomes text, never markup.
"use strict";

const { words, limits, asksToken } = JSON.parse(document.getElementById("settings").textContent);
const $ = (id) => document.getElementById(id);
const SHOWN = 4; // propositions of a passage; a click shows the others
const wide = matchMedia("(min-width: 1080px)");

const say = (key, values = {}) => words[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));

/** An element with attributes and children; texts become text nodes. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The language of a text, guessed from its script, for fonts and screen readers' voices. */
const languageOf = (text) =>
  /[\u3040-\u30ff]/.test(text) ? "ja" : /[\u3400-\u9fff]/.test(text) ? null : /[A-Za-z]/.test(text) ? "en" : null;

/* Asking the server */

class Refused extends Error {}
const REFUSALS = { 413: "too_large", 429: "too_many", 500: "failed", 502: "failed", 503: "busy" };

async function send(path, body, signal) {
  for (;;) {
    const headers = { "Content-Type": "application/json" };
    const token = sessionStorage.getItem("token");
    // fetch would throw for a token that no header can hold; without a token the server refuses the request
    if (token && /^[ -~]+$/.test(token)) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(say("offline"));
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await askToken(token !== null);
      continue;
    }
    if (response.status in REFUSALS) throw new Refused(say(REFUSALS[response.status]));
    const { detail } = await response.json().catch(() => ({ detail: response.statusText }));
    throw new Refused(detail);
  }
}

let tokenGiven = null;

/** Ask for the token; concurrent requests wait for the same dialog. */
function askToken(isWrong) {
  const dialog = $("token-dialog");
  $("token-wrong").hidden = !isWrong;
  tokenGiven ??= new Promise((resolve) => {
    const keep = (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", $("token").value.trim());
      $("token").value = "";
      $("token-form").removeEventListener("submit", keep);
      tokenGiven = null;
      dialog.close();
      resolve();
    };
    $("token-form").addEventListener("submit", keep);
    dialog.showModal();
  });
  return tokenGiven;
}
$("token-dialog").addEventListener("cancel", (event) => event.preventDefault());

/** The server-sent events of a response, one by one. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (unread + value).split("\n\n");
    unread = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const field = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2)).join("\n");
      if (field("data")) yield { kind: field("event"), data: JSON.parse(field("data")) };
    }
  }
}

/* Passages and their sources */

const titleOf = (place) => place.title || place.document || say("untitled");

/** The headings above a place, without the document's title. */
const below = ({ section, title }) => (title && `${section}, `.startsWith(`${title}, `) ? section.slice(title.length + 2) : section);

/** A line that says where a text is: headings, page, characters. */
function whereabouts(place) {
  const parts = [
    below(place),
    place.page && place.page !== place.section && say("page", place), // for spreadsheets both are the sheet's name
    place.start !== null && say("place", { start: (place.start + 1).toLocaleString(), end: place.end.toLocaleString() }),
    place.title && place.document !== place.title ? place.document : "",
  ];
  return make("p", { class: "where" }, parts.filter(Boolean).join(" · "));
}

/** A passage with its propositions' places marked, and the propositions; pressing one shows its own place. */
function passageWithFacts(place, heading) {
  const letters = Array.from(place.text); // offsets count characters, not JavaScript's UTF-16 units
  const spans = place.propositions.map(({ start, end }) => {
    if (start === null || place.start === null) return null;
    const span = [Math.max(start - place.start, 0), Math.min(end - place.start, letters.length)];
    return span[0] < span[1] && span[1] - span[0] < letters.length ? span : null; // the whole passage is not worth marking
  });
  const borders = [...new Set([0, letters.length, ...spans.filter(Boolean).flat()])].sort((a, b) => a - b);
  const text = make("p", { class: "text", lang: languageOf(place.text) });
  borders.slice(0, -1).forEach((start, at) => {
    const piece = letters.slice(start, borders[at + 1]).join("");
    const of = spans.flatMap((span, number) => (span && span[0] <= start && start < span[1] ? [number] : []));
    text.append(of.length ? make("mark", { "data-of": of.join(" ") }, piece) : piece);
  });
  const marks = text.querySelectorAll("mark");
  const facts = make("ul", { class: "facts" });
  place.propositions.forEach((fact, number) => {
    const show = () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      for (const other of facts.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(pressed));
      for (const mark of marks) {
        const isIts = mark.dataset.of.split(" ").includes(String(number));
        mark.classList.toggle("chosen", pressed && isIts);
        mark.classList.toggle("other", pressed && !isIts);
      }
      if (pressed) text.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
    };
    const remark = fact.unverified ? say("unverified") : fact.question ? say("for_question", fact) : "";
    const label = [make("span", { lang: languageOf(fact.text) }, fact.text), remark ? make("small", {}, remark) : null];
    const button = spans[number] && make("button", { type: "button", "aria-pressed": "false", onclick: show }, ...label);
    facts.append(make("li", { hidden: number >= SHOWN }, button || make("div", {}, ...label.filter(Boolean))));
  });
  const further = [...facts.children].slice(SHOWN);
  const more = make("button", { type: "button", class: "quiet more" }, say("more", { n: further.length }));
  more.addEventListener("click", () => {
    for (const item of further) item.hidden = false;
    more.remove();
    further[0].querySelector("button")?.focus();
  });
  const about = [make("h4", {}, heading), facts, further.length ? more : null, make("h4", {}, say("passage"))];
  const context = place.context.trim();
  const above = context ? make("p", { class: "text context", lang: languageOf(context) }, context) : null;
  return make("div", { class: "passage" }, ...(place.propositions.length ? about : []), ...[above, text].filter(Boolean));
}

const source = $("source");
let opener = null;

function openSource(citation, from) {
  opener = from;
  $("source-number").textContent = say("source", { n: citation.number });
  $("source-title").textContent = titleOf(citation);
  $("source-title").lang = languageOf(titleOf(citation)) ?? "";
  $("source-text").replaceChildren(whereabouts(citation), passageWithFacts(citation, say("facts")));
  if (source.open) source.close();
  if (wide.matches) source.show();
  else source.showModal();
  source.scrollTop = 0;
  $("source-title").focus({ preventScroll: true });
  source.querySelector("mark")?.scrollIntoView({ block: "nearest" });
  if (wide.matches) from.scrollIntoView({ block: "nearest" });
}

function closeSource() {
  if (!source.open) return;
  source.close();
  if (opener?.isConnected) opener.focus();
}
$("close").addEventListener("click", closeSource);
source.addEventListener("cancel", (event) => {
  event.preventDefault();
  closeSource();
});
source.addEventListener("click", (event) => {
  if (event.target === source && source.matches(":modal")) closeSource();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && source.open && !event.isComposing) closeSource();
});

/* The conversation */

const conversation = $("conversation");
const question = $("question");
let told = []; // the conversation as sent to the server
let running = null;

/** Writes an answer as it arrives: footnotes become buttons that open their source once it is known. */
class Writer {
  constructor(element) {
    Object.assign(this, { element, text: "", pending: "", unsaid: "", citations: new Map() });
  }

  write(delta) {
    this.text += delta;
    const whole = this.pending + delta;
    const [open] = whole.match(/\[(\^\d*)?$/) ?? [""]; // possibly the beginning of a footnote
    this.pending = open;
    this.#append(whole.slice(0, whole.length - open.length));
  }

  #append(text) {
    text.split(/\[\^(\d+)\]/).forEach((part, at) => {
      if (at % 2) this.#place(this.#footnote(Number(part)));
      else if (part) this.element.append(part);
    });
    this.#announce(text);
  }

  /** Put a footnote behind the text, on the same line as its last character. */
  #place(button) {
    const last = this.element.lastChild;
    if (last?.nodeType !== Node.TEXT_NODE) {
      (last ?? this.element).append(button); // behind another footnote
      return;
    }
    const character = Array.from(last.data).at(-1) ?? "";
    last.data = last.data.slice(0, last.data.length - character.length);
    this.element.append(make("span", { class: "together" }, character, button));
  }

  /** Announce whole sentences only; otherwise a screen reader would start again at every fragment. */
  #announce(text) {
    this.unsaid += text.replace(/\[\^\d+\]/g, "");
    const ends = this.unsaid.match(/^[\s\S]*(?:[。！？\n]|[.!?](?=\s))/);
    if (!ends) return;
    if (ends[0].trim()) $("said").append(make("p", { lang: languageOf(ends[0]) }, ends[0]));
    this.unsaid = this.unsaid.slice(ends[0].length);
  }

  #footnote(number) {
    const button = make("button", { type: "button", class: "footnote", "aria-disabled": "true" }, String(number));
    button.setAttribute("aria-label", say("source", { n: number }));
    button.addEventListener("click", () => {
      const citation = this.citations.get(number);
      if (citation) openSource(citation, button);
    });
    button.dataset.number = number;
    return button;
  }

  /** The answer is complete, or broke off: write what is pending. */
  end() {
    this.#append(this.pending);
    this.#announce("\n");
    this.pending = "";
  }

  /** The sources are known: enable the footnotes, and mark sentences that no source supports. */
  finish(answer) {
    this.end();
    for (const citation of answer.citations) this.citations.set(citation.number, citation);
    const unsupported = answer.outcome === "answered" ? answer.sentences.filter((one) => !one.footnotes.length) : [];
    for (const { text } of unsupported) this.#mark(text.trim());
    for (const button of this.element.querySelectorAll(".footnote")) {
      const citation = this.citations.get(Number(button.dataset.number));
      if (!citation) continue;
      button.removeAttribute("aria-disabled");
      button.setAttribute("aria-label", say("open_source", { n: citation.number, title: titleOf(citation) }));
    }
    if (answer.citations.length) this.element.after(this.#sources(answer.citations));
  }

  #mark(sentence) {
    this.element.normalize();
    for (const node of this.element.childNodes) {
      const at = node.nodeType === Node.TEXT_NODE ? node.data.indexOf(sentence) : -1;
      if (at < 0 || !sentence) continue;
      const found = node.splitText(at);
      found.splitText(sentence.length);
      const marked = make("span", { class: "unsupported", title: say("no_source") });
      found.replaceWith(marked);
      marked.append(found);
      return;
    }
  }

  #sources(citations) {
    const list = make("ol", { class: "sources", "aria-label": say("sources") });
    for (const citation of citations) {
      const open = () => openSource(citation, button);
      const title = titleOf(citation);
      const about = below(citation);
      const button = make(
        "button",
        { type: "button", onclick: open },
        make("span", { class: "unseen" }, say("a_source")),
        make("b", {}, String(citation.number)),
        make("span", { class: "title", lang: languageOf(title) }, title),
        about ? make("span", { class: "about", lang: languageOf(about) }, about) : null,
      );
      list.append(make("li", {}, button));
    }
    return list;
  }
}

const nearBottom = () => document.documentElement.scrollHeight - scrollY - innerHeight < 160;
const toBottom = () => scrollTo({ top: document.documentElement.scrollHeight });

function problem(text, again) {
  const retry = again && make("button", { type: "button", class: "quiet", onclick: again }, say("retry"));
  return make("p", { class: "problem", role: "alert" }, make("b", {}, say("problem")), text, retry ? " " : null, retry);
}

async function ask(text) {
  const turn = make("li", { class: "turn" });
  const answer = make("div", { class: "answer", lang: languageOf(text) });
  const waiting = make("p", { class: "waiting" }, say("thinking"));
  turn.append(
    make("h3", { class: "unseen" }, say("you")),
    make("p", { class: "asked", lang: languageOf(text) }, text),
    make("h3", { class: "unseen" }, say("answer")),
    waiting,
    answer,
  );
  conversation.append(turn);
  $("ask").classList.add("begun");
  $("new").hidden = false;
  $("said").replaceChildren(make("p", {}, say("thinking")));
  const mine = (running = new AbortController());
  $("send").textContent = say("stop");
  toBottom();
  const writer = new Writer(answer);
  let finished = false;
  try {
    const sent = { question: text, history: told.slice(-limits.history) };
    for await (const { kind, data } of events(await send("chat", sent, mine.signal))) {
      const follow = nearBottom();
      if (kind === "delta") {
        waiting.remove();
        writer.write(data.text);
      } else if (kind === "answer") {
        waiting.remove();
        answer.lang = languageOf(data.answer) ?? "";
        writer.finish(data);
        finished = true;
      } else if (kind === "problem") throw new Refused(say("failed"));
      if (follow) toBottom();
    }
    if (!finished) throw new Refused(say("cut"));
  } catch (error) {
    if (!turn.isConnected) return; // a new conversation has begun
    if (!finished) writer.end();
    const again = () => {
      if (running) return;
      turn.remove();
      ask(text);
    };
    if (error.name === "AbortError") turn.append(make("p", { class: "soft", role: "status" }, say("stopped")));
    else turn.append(problem(error instanceof Refused ? error.message : say("cut"), again));
    toBottom();
  } finally {
    waiting.remove();
    if (running === mine) {
      running = null;
      $("send").textContent = say("send");
    }
  }
  if (!writer.text.trim()) return;
  told.push({ role: "user", content: text }, { role: "assistant", content: Array.from(writer.text).slice(0, limits.message).join("") });
}

function grow() {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight}px`;
}

$("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) {
    running.abort();
    return;
  }
  const text = question.value.trim();
  if (!text) return;
  question.value = "";
  grow();
  question.focus();
  ask(text);
});
question.addEventListener("input", grow);
question.addEventListener("keydown", (event) => {
  // while an input method composes, Enter accepts its suggestion (Safari reports that only by the key code)
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  if (!running) $("ask-form").requestSubmit();
});
$("new").addEventListener("click", () => {
  running?.abort();
  running = null;
  told = [];
  conversation.replaceChildren();
  $("said").replaceChildren();
  $("send").textContent = say("send");
  $("ask").classList.remove("begun");
  $("new").hidden = true;
  closeSource();
  question.focus();
});

/* Search */

let searching = null;

$("search-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("query").value.trim();
  if (!text) return;
  searching?.abort();
  const mine = (searching = new AbortController());
  $("count").textContent = say("searching");
  try {
    const { passages } = await (await send("retrieve", { question: text, top_k: 10 }, mine.signal)).json();
    $("results").replaceChildren(...passages.map(result));
    const number = passages.length;
    $("count").textContent = number === 0 ? say("nothing") : number === 1 ? say("found_one") : say("found", { n: number });
  } catch (error) {
    if (error.name === "AbortError") return;
    $("count").textContent = "";
    $("results").replaceChildren(make("li", {}, problem(error instanceof Refused ? error.message : say("offline"))));
  }
});

function result(passage) {
  return make(
    "li",
    { class: "result" },
    make("h3", { lang: languageOf(titleOf(passage)) }, titleOf(passage)),
    whereabouts(passage),
    passageWithFacts(passage, say("found_by")),
  );
}

/* The two views */

function show() {
  const chosen = location.hash === "#search" ? "search" : "ask";
  for (const view of ["ask", "search"]) $(view).hidden = view !== chosen;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  closeSource();
  $(chosen === "ask" ? "question" : "query").focus({ preventScroll: true });
  scrollTo(0, 0);
}
addEventListener("hashchange", show);
if (location.hash) show();
if (asksToken && !sessionStorage.getItem("token")) askToken(false);
