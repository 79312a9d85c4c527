/* Ribbons: each joins the bar of a document to a word of an answer, as thick as the attention on the document. They
   follow bars that move and lines that wrap. assets/order_table.js and assets/why.js show them. */
import { h, percent, svg } from "../viz/drawing/common.js";

const FOLLOW_MS = 800; // bars move for less
const WIDEST = 22; // pixels at the word, for all of the attention
const DEPTH = 14; // pixels by which a ribbon goes around the text of a word beside its bar
const LINE_GAP = 8; // pixels below a word, at least, if another line follows
const MAX_BEFORE = 48; // characters of an answer before its decisive word: the end of two lines is cut off

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

/* Return the texts before, in and after the decisive word of an answer, without a beginning of more than some
   characters. */
export const partsOf = ({ text, origin: { start, stop } }, most = MAX_BEFORE) => {
  const [before, decisive, after] = [[0, start], [start, stop], [stop]].map((span) => [...text].slice(...span).join(""));
  return [before.length > most ? before.slice(-most).replace(/^\S*\s/, "… ") : before, decisive, after];
};

const joined = new WeakMap(); // ribbons by lane of the table

/* Put the badge of its document on the decisive word of an answer, and join it to the bar in a lane of the table. */
export const joinAnswer = ({ lane, text, answer, label, documents }) => {
  if (!joined.has(lane)) joined.set(lane, mount(lane.parentElement));
  const { origin } = answer ?? {};
  const bar = origin && lane.querySelector(`[data-document="${origin.document}"]`);
  if (!bar) return joined.get(lane).show([]);
  const { letter, color, ink } = documents[origin.document];
  const share = Math.max(...origin.shares);
  const says =
    `${label}: ${percent(share)} of the attention on document ${letter} (layer ${origin.layer}, head ` +
    `${origin.head}). One head, chosen for this answer; not a proof.`;
  const [before, decisive, after] = partsOf(answer);
  const badge = h("small", { textContent: letter, style: { background: color, color: ink } });
  const described = { role: "note", tabIndex: 0, "aria-label": `${decisive}. ${says}` };
  // The badge comes first: the end of a word may be cut off.
  const word = h("span", { className: "page-origin", style: { borderColor: color }, ...described }, badge, decisive);
  text.replaceChildren(before, word, after);
  explain(`ribbon-${label}`, says, word, ...joined.get(lane).show([{ bar, word, within: text, share, color }]));
};
