/* Ribbons: each joins the bar of a document to a word of an answer: in assets/order_table.js a word that is lost without
   the document, in assets/why.js the query, as thick as its attention. They follow bars that move and lines that wrap. */
import { h, svg } from "../viz/drawing/common.js";
import { translated } from "./language.js";

const FOLLOW_MS = 800; // bars move for less
const WIDEST = 22; // pixels at the word, for all of the attention
const DEPTH = 14; // pixels by which a ribbon goes around the text of a word beside its bar
const LINE_GAP = 8; // pixels below a word, at least, if another line follows
const MAX_BEFORE = 48; // characters of an answer before its first source: the end of two lines is cut off
const FULL_FALL = 15; // nats of log-probability that are lost with the document of the widest ribbon
const MANY = 1e6; // times as likely: a larger number says no more
const SHARE = 0.5; // width of a ribbon to a lost word if this fall is unknown

/* Return the outline of a ribbon from a bar to a word of a text: down to it, or around below the text, or above it if
   another line is below the word. */
export const outline = (bar, word, share, text) => {
  const [from, to] = [bar, word].map(({ left, width }) => left + width / 2);
  const half = Math.max(0.75, (share * WIDEST) / 2);
  const [start, gap] = [bar.bottom, word.top - bar.bottom];
  if (gap > DEPTH) {
    const wide = Math.max(half, share * bar.width * 0.46);
    const [high, low] = [start + gap * 0.6, word.top - gap * 0.6];
    return (
      `M${from - wide},${start} C${from - wide},${high} ${to - half},${low} ${to - half},${word.top} ` +
      `L${to + half},${word.top} C${to + half},${low} ${from + wide},${high} ${from + wide},${start} Z`
    );
  }
  const thin = Math.max(0.75, half / 3);
  const isAbove = word.bottom + LINE_GAP < text.bottom;
  const [edge, end] = isAbove ? [bar.top, word.top] : [start, word.bottom];
  const [outer, inner] = [thin, -thin].map((more) =>
    isAbove ? Math.min(edge, text.top) - DEPTH - more : Math.max(edge, text.bottom) + DEPTH + more,
  );
  return (
    `M${from - thin},${edge} C${from - thin},${outer} ${to + thin},${outer} ${to + thin},${end} ` +
    `L${to - thin},${end} C${to - thin},${inner} ${from + thin},${inner} ${from + thin},${edge} Z`
  );
};

/* Let a node show a text as assets/terms.js shows that of a term. */
const explain = (id, text, ...nodes) => {
  const made = document.getElementById(id) ?? document.createElement("div");
  Object.assign(made, { id, popover: "auto", className: "pine-explanation", textContent: text });
  if (!made.isConnected) nodes[0].closest("table").after(made); // other explanations may come later
  for (const node of nodes) node.dataset.term = id;
};

/* Prepare an element for ribbons between its parts. `show` takes { bar, word, share, color } for each; a word that
   its cell cuts off has none. */
export const mount = (element) => {
  const drawing = svg("svg", { class: "page-ribbons", "aria-hidden": "true" });
  element.append(drawing);
  let ribbons = [];
  let until = 0;

  const draw = () => {
    const box = drawing.getBoundingClientRect();
    drawing.setAttribute("viewBox", `0 0 ${box.width || 1} ${box.height || 1}`);
    const place = (node) => {
      const { left, top, bottom, width } = node.getBoundingClientRect();
      return { left: left - box.left, top: top - box.top, bottom: bottom - box.top, width };
    };
    for (const { path, bar, word, within, share } of ribbons) {
      const [end, text] = [place(word), place(within)];
      const isSeen = word.checkVisibility() && end.top < text.bottom - 4;
      path.setAttribute("d", isSeen ? outline(place(bar), end, share, within === element ? end : text) : "");
    }
  };

  const follow = () => {
    draw();
    if (performance.now() < until) requestAnimationFrame(follow);
  };

  const show = (entries) => {
    drawing.replaceChildren();
    ribbons = entries.map((entry) => {
      const data = { "data-document": entry.bar.dataset.document, "data-share": entry.share };
      const path = drawing.appendChild(svg("path", { style: `fill:${entry.color}`, ...data }));
      return { within: element, ...entry, path };
    });
    const isFollowed = performance.now() < until;
    until = performance.now() + FOLLOW_MS;
    if (isFollowed) draw();
    else follow();
    return ribbons.map(({ path }) => path);
  };

  new ResizeObserver(draw).observe(element);
  element.addEventListener("transitionend", draw); // a busy browser starts moves late
  return { show };
};

/* Return the parts of an answer, each with the document that it needs or none, without a beginning of more than some
   characters before the first such part. */
export const partsOf = ({ text, sources = [] }, most = MAX_BEFORE) => {
  const signs = [...text];
  const parts = [];
  let end = 0;
  for (const { start, stop, document } of sources) {
    parts.push({ text: signs.slice(end, start).join("") }, { text: signs.slice(start, stop).join(""), document });
    end = stop;
  }
  const [first] = parts;
  if (first?.text.length > most) first.text = first.text.slice(-most).replace(/^\S*\s/, "… ");
  return [...parts, { text: signs.slice(end).join("") }];
};

const NOTES = {
  "in no document": "No document contains these words.",
  "no single source": "No document alone is needed for these words: they stay, or several documents are needed.",
};

const joined = new WeakMap(); // ribbons by lane of the table

/* Return the width of a ribbon, 0 to 1: how much less likely the answer is without its document. */
export const shareOf = ({ falls }, document) =>
  falls ? Math.min(1, Math.max(0.1, falls[document] / FULL_FALL)) : SHARE;

/* Return how many times as likely the answer is with a document, if it is more likely. */
export const likelihood = ({ falls }, document) => {
  const times = falls ? Math.exp(falls[document]) : 0;
  if (times < 1.1) return "";
  if (times > MANY) return " (With the document, the answer is more than a million times as likely.)";
  const factor = times < 10 ? times.toFixed(1) : Number(times.toPrecision(2));
  return ` (With the document, the answer is ${factor} times as likely.)`;
};

/* Return a word with the badge of the document that it needs; the badge comes first: the end may be cut off. */
const sourceWord = ({ text, document }, { answer, label, documents }) => {
  const { letter, color, ink } = documents[document];
  const says = `${label} without document ${letter}: ${answer.without[document]}${likelihood(answer, document)}`;
  const badge = h("small", { textContent: letter, style: { background: color, color: ink } });
  const described = { role: "note", tabIndex: 0, "aria-label": translated(`${text}, from document ${letter}. ${says}`) };
  const word = h("span", { className: "page-source", style: { borderColor: color }, ...described }, badge, text);
  word.says = says;
  return word;
};

/* Put the badge of its document on each word of an answer that needs one, and join it to the bar in a lane. */
export const joinAnswer = ({ lane, text, answer, label, documents, isJoined }) => {
  if (!joined.has(lane)) joined.set(lane, mount(lane.parentElement));
  const ends = [];
  const nodes = (answer?.text ? partsOf(answer) : []).map((part) => {
    if (part.document === undefined) return part.text;
    const word = sourceWord(part, { answer, label, documents });
    const bar = lane.querySelector(`[data-document="${part.document}"]`);
    ends.push({ bar, word, within: text, share: shareOf(answer, part.document), color: documents[part.document].color });
    return word;
  });
  const note = NOTES[answer?.finding];
  // The note comes first: the end of a long answer is cut off.
  if (note) nodes.unshift(h("small", { className: "page-no-source", textContent: answer.finding, title: note, translate: true }));
  if (ends.length || note) text.replaceChildren(...nodes);
  const drawn = ends.filter(({ bar }) => bar && isJoined);
  const paths = new Map(joined.get(lane).show(drawn).map((path, place) => [drawn[place].word, path]));
  ends.forEach(({ word }, place) =>
    explain(`ribbon-${label}-${place}`, word.says, ...[word, paths.get(word)].filter(Boolean)));
};
