/* Dialog with a full answer, or with two answers and the words that differ marked.

   The cards are redrawn at every update of a run. The dialog is outside of them, finds its answers by the names of the
   methods, and is updated with the cards. */
import { closest, h } from "../viz/drawing/common.js";

const OVER = ["finished", "stopped"];
// A word or a punctuation mark with the blanks after it, as in viz/cards/compare.py.
const WORD = /(?:(?:(?![\u2e80-\u9fff])[\p{L}\p{N}_])+|\S)\s*|^\s+/gu;

const cards = () => [...document.querySelectorAll("#answers .pine-answer")];
const cardOf = (method) => cards().find((card) => card.dataset.method === method);
const labelOf = (card) => card.querySelector("h3").firstChild.textContent.trim();
const textOf = (card) => card.querySelector(":scope > .pine-answer-text:not(.pine-muted)")?.textContent ?? "";

// Words that differ ------------------------------------------------------------------------------

/* Return the longest sequence of words in both ranges, as [start of ours, start of theirs, length]. */
const longestShared = (ours, theirs, [from, to, otherFrom, otherTo]) => {
  let best = [from, otherFrom, 0];
  let ending = new Map();
  for (let at = from; at < to; at += 1) {
    const next = new Map();
    for (let other = otherFrom; other < otherTo; other += 1) {
      if (ours[at] !== theirs[other]) continue;
      const length = (ending.get(other - 1) ?? 0) + 1;
      next.set(other, length);
      if (length > best[2]) best = [at - length + 1, other - length + 1, length];
    }
    ending = next;
  }
  return best;
};

/* Add the common words to `shared`: the longest sequence, then before and after it, as Python's difflib does. */
const findShared = (ours, theirs, shared, range = [0, ours.length, 0, theirs.length]) => {
  const [at, other, length] = longestShared(ours, theirs, range);
  if (!length) return;
  for (let step = 0; step < length; step += 1) {
    shared[0].add(at + step);
    shared[1].add(other + step);
  }
  findShared(ours, theirs, shared, [range[0], at, range[2], other]);
  findShared(ours, theirs, shared, [at + length, range[1], other + length, range[3]]);
};

export const compare = (texts) => {
  const words = texts.map((text) => text.match(WORD) ?? []);
  const shared = [new Set(), new Set()];
  findShared(...words.map((own) => own.map((word) => word.trim())), shared);
  return words.map((own, side) => own.map((word, at) => ({ word, isShared: shared[side].has(at) })));
};

export const markWords = (words) => {
  const parts = document.createDocumentFragment();
  for (const { word, isShared } of words) {
    const last = parts.lastChild;
    if (last && (last.nodeName === "MARK") === !isShared) last.textContent += word;
    else if (isShared) parts.append(word);
    else parts.append(h("mark", { textContent: word }));
  }
  return parts;
};

const count = (words) => words.filter(({ isShared }) => !isShared).length;

const verdict = (pair, words) => {
  if (!words) return "";
  if (!pair.every((card) => OVER.includes(card.dataset.state))) return "Still generating…";
  if (words.every((own) => !count(own))) return "The answers are identical.";
  const sentences = words.map((own, side) => `${count(own)} of ${own.length} words differ (${labelOf(pair[side])})`);
  return `${sentences.join(", ")}.`;
};

// The dialog -------------------------------------------------------------------------------------

let shown = { one: "", other: "" };
let opener = null; // the button, as a selector
let html = ""; // of the cards in the dialog
const watch = new MutationObserver(() => draw());

const dialog = () => {
  const made = document.getElementById("answer-dialog");
  if (made) return made;
  const fresh = h("dialog", { id: "answer-dialog", "aria-labelledby": "answer-dialog-title" });
  fresh.innerHTML =
    '<header><h2 id="answer-dialog-title">Answer</h2>' +
    '<label>Method <select name="one"></select></label>' +
    '<label>Compare with <select name="other"></select></label>' +
    '<button type="button">Close</button></header>' +
    '<p role="status"></p><div class="page-beside"></div>';
  fresh.querySelector("button").addEventListener("click", () => fresh.close());
  fresh.addEventListener("close", closed);
  fresh.addEventListener("change", (event) => {
    shown = { ...shown, [event.target.name]: event.target.value };
    draw();
  });
  // Escape closes the dialog and has no effect on the page.
  fresh.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  document.body.append(fresh);
  return fresh;
};

const closed = () => {
  watch.disconnect();
  html = "";
  document.querySelector(opener)?.focus();
};

const fillOptions = (select, selected, disabled, first) => {
  const options = cards().map((card) => {
    const option = new Option(labelOf(card), card.dataset.method);
    option.disabled = card.dataset.method === disabled;
    return option;
  });
  select.replaceChildren(...first, ...options);
  select.value = selected;
};

const copyOf = (card, words) => {
  const copy = card.cloneNode(true);
  copy.querySelector(".pine-answer-tools").remove();
  const text = copy.querySelector(":scope > .pine-answer-text:not(.pine-muted)");
  if (words && text) text.replaceChildren(markWords(words));
  return copy;
};

const draw = () => {
  const pair = [shown.one, shown.other].filter(Boolean).map(cardOf);
  const open = dialog();
  if (pair.includes(undefined)) return open.close();
  const source = pair.map((card) => card.outerHTML).join("");
  if (source === html) return;
  html = source;
  const words = pair.length === 2 ? compare(pair.map(textOf)) : null;
  fillOptions(open.querySelector("[name=one]"), shown.one, shown.other, []);
  fillOptions(open.querySelector("[name=other]"), shown.other, shown.one, [new Option("none", "")]);
  open.querySelector("[role=status]").textContent = verdict(pair, words);
  open.querySelector(".page-beside").replaceChildren(...pair.map((card, side) => copyOf(card, words?.[side])));
};

/* Return the method of the first different answer, or else of the first other one. */
const otherThan = (card) => {
  const others = cards().filter((each) => each !== card);
  return (others.find((each) => textOf(each) !== textOf(card)) ?? others[0])?.dataset.method ?? "";
};

document.addEventListener("click", (event) => {
  const button = closest(event.target, "#answers [data-answer]");
  if (!button) return;
  const { answer: method, compare } = button.dataset;
  opener = `#answers [data-answer="${method}"]${compare ? "[data-compare]" : ":not([data-compare])"}`;
  shown = { one: method, other: compare ? otherThan(cardOf(method)) : "" };
  html = "";
  const all = { childList: true, subtree: true, characterData: true, attributes: true };
  watch.observe(document.getElementById("answers"), all);
  draw();
  dialog().showModal();
});
