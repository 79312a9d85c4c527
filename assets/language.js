/* The page in the language of the visitor: texts and labels are translated as they are added to the document, by the
   pairs of viz/languages, which the server writes into the page (viz/page/serving/languages.py). A text without a pair
   stays English. An element with translate="no" keeps its texts, as for the translators of browsers. */
import { setTranslate } from "../viz/drawing/figures.js";

const HOLE = /\{(@{0,2})(\w+)(?::([^}]*))?\}/; // see docs/recipes.md
const BREAKS = [/(\n|(?<=[.!?”]) (?=[A-Z“(<]))/, /(; )/]; // between sentences, and then between their parts
const LIST = /(, | and )/; // between the entries of a list
const TAG = /<(\d+)>(.*?)<\/\1>/; // an element in a sentence, by its number
const NUMBER = "([+-]?\\d+(?:[.,]\\d+)*(?:e-?\\d+)?)";
const TEXT = "((?:(?![.!?] [A-Z“(<]).)+?)";
const QUOTED = "([^]+?)";
const CATEGORIES = ["zero", "one", "two", "few", "many", "other"];
const LABELS = ["title", "aria-label", "aria-valuetext", "placeholder", "alt"];
const OPTION = "input[role=combobox]";
const SKIPPED = "script, style, textarea, pre, code";
const MAX_KNOWN = 5000; // texts, of which most are those of a run in progress

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/* Return the holes of a text, each as the text before it, "", "@" or "@@", its name and its words; then the text at the end. */
const holesOf = (text) => {
  const parts = text.split(HOLE);
  const ends = Array.from({ length: (parts.length - 1) / 4 }, (_, place) => 4 * place);
  return [ends.map((start) => parts.slice(start, start + 4)), parts.at(-1)];
};

const sourceOf = ([before, , name, words]) => {
  if (words) return `${escaped(before)}(?:${words.split("|").map(escaped).join("|")})`;
  if (name.length === 1) return escaped(before) + NUMBER;
  return escaped(before) + (before.endsWith("“") ? QUOTED : TEXT);
};

const compiled = ([english, other]) => {
  const [holes, end] = holesOf(english);
  const names = holes.filter(([, , , words]) => !words).map(([, , name]) => name);
  const pattern = new RegExp(`^${holes.map(sourceOf).join("")}${escaped(end)}$`);
  const size = holes.reduce((sum, [before]) => sum + before.length, end.length);
  return { pattern, names, other, size };
};

/* Return a function that translates a text by pairs of an English text and one in another language. The longest pair
   that fits is taken. */
export const translator = (pairs, lang) => {
  const exact = new Map(pairs.filter(([english]) => !HOLE.test(english)));
  const patterns = pairs.filter(([english]) => HOLE.test(english)).map(compiled);
  patterns.sort((left, right) => right.size - left.size);
  const rules = new Intl.PluralRules(lang);
  const categories = CATEGORIES.filter((one) => rules.resolvedOptions().pluralCategories.includes(one));
  const known = new Map();

  const wordOf = (words, number) =>
    words[categories.indexOf(rules.select(Number(number.replaceAll(",", ""))))] ?? words.at(-1);

  const listed = (value) => value.split(LIST).map(translated).join("");

  const fill = (other, values) =>
    other.replace(new RegExp(HOLE, "g"), (_, mark, name, words) => {
      if (words) return wordOf(words.split("|"), values[name]);
      return mark === "@@" ? listed(values[name]) : mark ? translated(values[name]) : values[name];
    });

  const find = (text) => {
    const [, start, body, end] = text.match(/^(\s*)([^]*?)(\s*)$/);
    if (exact.has(body)) return start + exact.get(body) + end;
    for (const { pattern, names, other } of patterns) {
      const found = body.match(pattern);
      if (found) return start + fill(other, Object.fromEntries(names.map((name, at) => [name, found[at + 1]]))) + end;
    }
    const parts = BREAKS.map((one) => text.split(one)).find(({ length }) => length > 1) ?? [];
    return parts.map((part, at) => (at % 2 ? part : find(part))).join("") || text;
  };

  const translated = (text) => {
    if (known.size > MAX_KNOWN) known.clear();
    if (!known.has(text)) known.set(text, find(text));
    return known.get(text);
  };
  return translated;
};

const { lang = "en", texts = [], later = "" } = window.pineLanguage ?? {};
let translate = translator(texts, lang);

/* Return a text of the page in the language of the visitor. */
export const translated = (text) => translate(text);

const isKept = (element) => element.closest("[translate]")?.getAttribute("translate") === "no";

const translateText = (node) => {
  const place = node.parentElement;
  if (!node.data.trim() || !place || place.closest(SKIPPED) || isKept(place)) return;
  const english = node.data.replace(/\s+/g, " ");
  const text = translated(english);
  if (text !== english) node.data = text;
};

const translateLabels = (element) => {
  for (const name of LABELS) {
    const label = element.getAttribute(name);
    if (!label || isKept(element)) continue;
    const text = translated(label);
    if (text !== label) element.setAttribute(name, text);
  }
};

/* Translate a sentence with elements in it, such as "Each <1>token</1> attends", whose elements may change places. */
const translateSentence = (element) => {
  const nodes = [...element.childNodes];
  const parts = [...element.children];
  const isSentence = parts.length && nodes.some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  if (!isSentence || parts.some(({ children }) => children.length) || isKept(element)) return;
  const tagged = (node) => (node.nodeType === Node.TEXT_NODE ? node.data : inTag(node.textContent, parts.indexOf(node) + 1));
  const text = nodes.map(tagged).join("").replace(/\s+/g, " ").trim();
  const pieces = translated(text).split(TAG);
  if (pieces.length !== 3 * parts.length + 1 || pieces.join() === text.split(TAG).join()) return;
  const moved = [];
  for (let at = 1; at < pieces.length; at += 3) {
    const part = parts[pieces[at] - 1];
    if (part.textContent !== pieces[at + 1]) part.textContent = pieces[at + 1];
    moved.push(part, pieces[at + 2]);
  }
  element.replaceChildren(pieces[0], ...moved);
};

const inTag = (text, number) => `<${number}>${text}</${number}>`;

/* Translate the selected option of a list: gradio sets the value of its field without a change of the document. */
const translateOption = (field) => {
  const { get, set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  const value = get.call(field);
  Object.defineProperty(field, "value", { configurable: true, get, set: (text) => set.call(field, translated(text)) });
  if (translated(value) !== value) field.value = value;
};

const translateNode = (node) => {
  if (node.nodeType === Node.TEXT_NODE) translateText(node);
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  if (node.matches(OPTION) && !isKept(node)) translateOption(node);
  translateLabels(node);
  if (!node.matches(SKIPPED)) translateSentence(node);
};

const translateAll = (root) => {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = root; node; node = walker.nextNode()) translateNode(node);
};

let isRequested = false;

/* Request the texts behind the first screen, once they may be needed. */
const request = async () => {
  if (isRequested) return;
  isRequested = true;
  const answer = await fetch(`${window.gradio_config?.root ?? "."}${later}`);
  translate = translator([...texts, ...(await answer.json())], lang);
  translateAll(document.documentElement);
  setTranslate(translated);
};

if (later) {
  const root = document.documentElement;
  const observer = new MutationObserver((changes) => {
    for (const { type, target, addedNodes } of changes) {
      if (type === "childList") addedNodes.forEach(translateAll);
      else translateNode(target);
    }
    if (root.lang !== lang) root.lang = lang; // gradio sets its own
    observer.takeRecords(); // changes made here
  });
  const kinds = { childList: true, subtree: true, characterData: true, attributeFilter: [...LABELS, "lang"] };
  observer.observe(root, kinds);
  root.lang = lang;
  translateAll(root);
  setTranslate(translated);
  const used = ({ isTrusted }) => isTrusted && request();
  for (const kind of ["pointermove", "pointerdown", "click", "keydown"]) document.addEventListener(kind, used, true);
}
