/* Tab "Why": mask, importance and positions of vanilla and PINE side by side, drawn from the JSON of viz/page/why.py. A
   word of the answer is the query of the last two steps; another document order moves what depends on it.
   assets/tutorial.js turns the steps, assets/ribbons.js draws the ribbons. */
import { isStill, percent, svg } from "../viz/drawing/common.js";
import { mount as mountRibbons } from "./ribbons.js";

const METHODS = ["vanilla", "pine"];
const STEP_MS = 900; // before a step plays
const TOKEN_MS = 650;
const MIN_SHARE = 0.5; // of attention on one document, from which a token has its color
const MANY = 5; // documents, beside which numbers have no room for a unit
const CELL = 40; // of the mask, in its own units

const visible = (token) => `“${token.trim() || "␣"}”`;
const most = (values) => values.indexOf(Math.max(...values));
const nearest = ({ starts }, token) => most(starts[token]);

const node = (name, attributes, parent, text) => {
  const made = svg(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
};

const box = (parent, className, text = "") => {
  const made = parent.appendChild(document.createElement("div"));
  made.className = className;
  made.textContent = text;
  return made;
};

/* Keep one child of a stage for each document, so that a change of its place is a motion. */
const bars = (stage, record, className) => {
  const made = stage.querySelectorAll(`.${className}`);
  if (made.length) return [...made];
  return record.documents.map(({ letter, text, color, ink, pattern }, index) => {
    const bar = box(stage, className);
    bar.dataset.document = index;
    bar.title = `Document ${letter}: ${text}`;
    Object.assign(bar.style, { background: color, color: ink, borderStyle: pattern });
    const label = bar.appendChild(document.createElement("span"));
    label.append(Object.assign(document.createElement("b"), { textContent: letter }), ` ${text}`);
    label.translate = false;
    return bar;
  });
};

// Mask: rows attend to columns ------------------------------------------------------------------------

const drawBadge = (picture, { letter, color, ink, pattern }, left, top) => {
  const style = `fill:${color};stroke-dasharray:${{ dashed: "5 3", dotted: "2 2" }[pattern] ?? "none"}`;
  const side = CELL - 8;
  node("rect", { x: left + 4, y: top + 4, width: side, height: side, rx: 7, style, class: "page-why-badge" }, picture);
  const place = { x: left + CELL / 2, y: top + CELL * 0.66 };
  node("text", { ...place, style: `fill:${ink}`, class: "page-why-letter" }, picture, letter);
};

const drawMask = ({ stage, caption, record, method, order, phase }) => {
  // PINE's mask is the same in every order, and so is its picture.
  const rows = method === "pine" ? record.orders[0].order : order;
  const [before, now] = ["vanilla", method].map((name) => record.visible[name]);
  const count = rows.length;
  const side = CELL * (count + 2);
  const letter = (one) => record.documents[one].letter;
  const seenBy = (row) => rows.filter((_, column) => column !== row && now[row][column]).map(letter);
  const says = (row) => {
    const seen = seenBy(row);
    if (!seen.length) return "no other";
    return seen.length > 4 ? `${seen.length} others` : seen.join(" ");
  };
  const picture = svg("svg");
  picture.setAttribute("viewBox", `-44 -4 ${side + CELL + 150} ${side + CELL + 8}`);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", rows.map((one, row) => `${letter(one)} attends to ${says(row)}`).join("; "));
  node("text", { x: side + CELL + 10, y: CELL * 0.65, class: "page-why-note" }, picture, "attends to");
  const part = (index) => (index === 0 ? "start" : index > count ? "question" : null);
  for (let row = 0; row < count + 2; row++) {
    const y = CELL * (row + 1);
    const name = part(row);
    if (!name) {
      drawBadge(picture, record.documents[rows[row - 1]], 0, y);
      drawBadge(picture, record.documents[rows[row - 1]], y, 0);
      node("text", { x: side + CELL + 10, y: y + CELL * 0.64 }, picture, says(row - 1));
    } else {
      node("text", { x: CELL - 8, y: y + CELL * 0.64, class: "page-why-note", "text-anchor": "end" }, picture, name);
    }
    for (let column = 0; column < count + 2; column++) {
      const x = CELL * (column + 1);
      const isBetween = !name && !part(column) && row !== column;
      const shape = { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3 };
      node("rect", { ...shape, class: "page-why-cell" }, picture);
      if (row === column) {
        node("path", { d: `M${x + 1},${y + 1} v${CELL - 2} h${CELL - 2} Z`, class: "page-why-seen" }, picture);
      } else if (isBetween ? before[row - 1][column - 1] : column < row) {
        node("rect", { ...shape, class: "page-why-seen" }, picture);
      } else if (isBetween && now[row - 1][column - 1]) {
        const added = node("rect", { ...shape, class: "page-why-seen page-why-added" }, picture);
        added.style.transitionDelay = `${60 * (row + column)}ms`;
        added.style.opacity = phase ? 1 : 0;
      }
    }
  }
  const old = stage.firstElementChild;
  // The cells of the same picture fade in; another order draws another picture.
  if (old?.dataset.rows === String(rows)) {
    for (const added of old.querySelectorAll(".page-why-added")) added.style.opacity = phase ? 1 : 0;
  } else stage.replaceChildren(picture);
  picture.dataset.rows = rows;
  const [first, last] = [rows[0], rows[count - 1]].map(letter);
  const isSame = rows.every((_, row) => seenBy(row).length === count - 1);
  caption.textContent = isSame
    ? "Every document attends to every other, in any order."
    : `${last} attends to every document, ${first} to no other: the order decides.`;
};

// Importance: columns that slide into the order of a query ----------------------------------------------

const drawImportance = ({ stage, caption, record, answer, order, token, phase }) => {
  const { starts, scores, tokens } = answer;
  const count = order.length;
  const isSorted = scores && phase;
  const place =
    scores && !phase
      ? order.map((_, index) => order.indexOf(index))
      : starts[token].map((start) => starts[token].filter((other) => other < start).length);
  const width = 100 / count;
  const query = stage.querySelector(".page-why-query") ?? box(stage, "page-why-query");
  const verb = Object.assign(document.createElement("small"), { textContent: "writes" });
  query.replaceChildren(verb, visible(tokens[token]));
  const position = record.documents_end + record.suffix_length - 1 + token;
  const columns = stage.querySelector(".page-why-columns") ?? box(stage, "page-why-columns");
  bars(columns, record, "page-why-column").forEach((column, index) => {
    const above = column.querySelector(".page-why-score") ?? box(column, "page-why-score");
    const away = position - (starts[token][index] + record.documents[index].length - 1);
    const share = scores ? (isSorted ? scores[token][index] : 0) : null;
    const number = above.firstElementChild ?? above.appendChild(document.createElement("span"));
    number.textContent = scores ? (isSorted ? percent(share) : "") : count > MANY ? away : `${away} tokens`;
    above.style.setProperty("--height", share ?? 0);
    above.style.background = record.documents[index].color;
    Object.assign(column.style, { left: `${width * place[index]}%`, width: `calc(${width}% - 4px)` });
  });
  if (!scores) drawDistances(columns, record, { place, width });
  const letter = record.documents[nearest(answer, token)].letter;
  caption.textContent = scores
    ? `${letter} is nearest: it has the highest score for ${visible(tokens[token])}.`
    : `${letter} is nearest: you gave it last.${count > MANY ? " Numbers: tokens to the query." : ""}`;
};

/* Draw an arc from each document to the query. */
const drawDistances = (columns, record, { place, width }) => {
  const frame = { viewBox: "0 0 100 100", preserveAspectRatio: "none", class: "page-why-arcs", "aria-hidden": "true" };
  const drawing = columns.querySelector("svg") ?? node("svg", frame, columns);
  drawing.replaceChildren();
  const count = place.length;
  const query = columns.parentElement.querySelector(".page-why-query");
  place.forEach((slot, index) => {
    const [from, to] = [width * (slot + 0.5), (100 * query.offsetLeft + 50 * query.offsetWidth) / columns.offsetWidth];
    const high = 100 - (120 * (count - slot)) / count;
    const style = `stroke:${record.documents[index].color}`;
    node("path", { d: `M${from},100 C${from},${high} ${to},${high} ${to},100`, style }, drawing);
  });
};

// Positions: documents on a ruler, ribbons to the word that is decoded ------------------------------------

const drawPositions = ({ stage, caption, record, method, answer, token, written, select }) => {
  const { starts, shares, tokens } = answer;
  const { prefix_length: first, documents_end: end, suffix_length: suffix, documents } = record;
  const query = end + suffix - 1 + token;
  const scale = 100 / (end + suffix + record.num_tokens - first);
  const ruler = stage.querySelector(".page-why-ruler") ?? box(stage, "page-why-ruler");
  bars(ruler, record, "page-why-bar").forEach((bar, index) => {
    bar.style.left = `${scale * (starts[token][index] - first)}%`;
    bar.style.width = `calc(${scale * documents[index].length}% - 3px)`;
    const tick = bar.querySelector("small") ?? bar.appendChild(document.createElement("small"));
    tick.textContent = starts[token][index];
  });
  const asked = ruler.querySelector(".page-why-asked") ?? box(ruler, "page-why-asked");
  const label = scale * suffix > 8 ? record.question || "question" : "?"; // no room
  const question = { textContent: label, translate: false };
  asked.replaceChildren(Object.assign(document.createElement("span"), question));
  Object.assign(asked.style, { left: `${scale * (end - first)}%`, width: `calc(${scale * suffix}% - 3px)` });
  const mark = ruler.querySelector(".page-why-mark") ?? box(ruler, "page-why-mark");
  mark.replaceChildren(Object.assign(document.createElement("small"), { textContent: `query ${query}` }));
  mark.style.left = `${scale * (query + 0.5 - first)}%`;

  const text = stage.querySelector(".page-why-words") ?? box(stage, "page-why-words");
  text.translate = false;
  text.dir = "auto";
  text.replaceChildren();
  let word = null;
  let strongest = -1;
  tokens.forEach((piece, index) => {
    const shown = piece.trimStart();
    const blank = index ? piece.slice(0, piece.length - shown.length) : "";
    if (!word || blank) {
      text.append(blank);
      word = text.appendChild(Object.assign(document.createElement("button"), { type: "button", tabIndex: -1 }));
      word.toggleAttribute("data-unwritten", index > written); // a button in view needs a name
      strongest = -1;
    }
    const part = word.appendChild(Object.assign(document.createElement("span"), { textContent: shown }));
    const [source, share] = [most(shares[index]), Math.max(...shares[index])];
    if (share >= MIN_SHARE && shown) part.style.setProperty("--pine-fill", documents[source].color);
    part.toggleAttribute("data-query", index === token);
    part.toggleAttribute("data-unwritten", index > written);
    if (share > strongest && shown) {
      strongest = share;
      word.dataset.token = index;
    }
    word.onclick ??= ({ currentTarget }) => select(Number(currentTarget.dataset.token));
  });
  const target = text.querySelector("[data-query]");
  const [source, near] = [most(shares[token]), nearest(answer, token)];
  stage.ribbons ??= mountRibbons(stage);
  stage.ribbons.show(
    [...ruler.querySelectorAll(".page-why-bar")].map((bar, index) => {
      return { bar, word: target, share: shares[token][index], color: documents[index].color };
    }),
  );
  const farthest = starts[token].indexOf(Math.min(...starts[token]));
  const nearby = method === "pine" ? "which PINE places nearest" : "the nearest document";
  const places = { [farthest]: "the farthest document", [near]: nearby };
  caption.textContent =
    `${visible(tokens[token])}: ${percent(shares[token][source])} of the attention on ${documents[source].letter}, ` +
    `${places[source] ?? "in between"}.`;
};

const DRAW = [drawMask, drawImportance, drawPositions];

// The tab ------------------------------------------------------------------------------------------------

export const mount = ({ element, props, watch }) => {
  const why = element.querySelector(".page-why");
  const steps = [...why.querySelectorAll(".pine-tutorial-step")];
  const [play, slider, orders] = ["[name=play]", "[name=token]", "[role=group]"].map((one) =>
    why.querySelector(`.page-why-controls ${one}`),
  );
  let record = null;
  let order = 0;
  let token = null; // picked by the visitor; each answer begins with its decisive one
  let phase = 1; // 0 before a step has played
  let written = Infinity; // last token of the answers that is visible, and the query while it is written
  let timer = null;

  const current = () => steps.findIndex((step) => step.classList.contains("pine-current"));

  const draw = () => {
    const index = current();
    const shown = written < Infinity ? written : token;
    const answers = record.orders[order];
    for (const figure of steps[index].querySelectorAll("figure")) {
      const method = figure.dataset.method;
      const answer = answers[method];
      DRAW[index]({
        ...{ stage: figure.querySelector(".page-why-stage"), caption: figure.querySelector("figcaption") },
        ...{ record, method, answer, order: answers.order, phase, written, select },
        token: Math.min(shown ?? answer.token, answer.tokens.length - 1),
      });
    }
    play.textContent = timer ? "❚❚ Pause" : `▶ ${steps[index].dataset.play}`;
    slider.parentElement.hidden = index === 0;
    slider.value = shown ?? answers.pine.token;
    slider.setAttribute("aria-valuetext", captions());
    for (const button of orders.children) button.ariaPressed = String(Number(button.dataset.index) === order);
  };

  /* Return both captions of the step in one text. */
  const captions = () =>
    METHODS.map((method) => {
      const figure = steps[current()].querySelector(`[data-method=${method}]`);
      return `${figure.querySelector("h4 b").textContent}: ${figure.querySelector("figcaption").textContent}`;
    }).join(" ");

  const stop = () => {
    clearInterval(timer);
    timer = null;
    phase = 1;
    written = Infinity;
  };

  const start = () => {
    stop();
    if (current() < 2) {
      phase = 0;
      timer = setTimeout(() => [stop(), draw()], STEP_MS);
    } else {
      written = 0;
      timer = setInterval(() => {
        written += 1;
        if (written >= record.num_tokens) stop();
        draw();
      }, TOKEN_MS);
    }
    draw();
  };

  const change = (changes) => {
    stop();
    ({ order, token } = { order, token, ...changes });
    draw();
    why.querySelector("[data-status]").textContent = captions();
  };
  const select = (picked) => change({ token: picked });

  play.addEventListener("click", () => {
    if (!timer) return start();
    stop();
    draw();
  });
  slider.addEventListener("input", () => select(Number(slider.value)));
  why.addEventListener("pine:step", () => {
    stop();
    if (isStill()) draw();
    else start();
  });

  const read = () => {
    if (!props.value) return;
    stop();
    record = JSON.parse(props.value);
    const lengths = record.orders.flatMap((one) => METHODS.map((method) => one[method].tokens.length));
    record.num_tokens = Math.max(...lengths);
    token = null;
    order = 0;
    for (const stage of why.querySelectorAll(".page-why-stage")) {
      stage.replaceChildren();
      stage.ribbons = null;
    }
    orders.replaceChildren(
      ...record.orders.map((one, index) => {
        const name = one.order.map((document) => record.documents[document].letter).join(" ");
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
        button.dataset.index = index;
        button.addEventListener("click", () => change({ order: index }));
        return button;
      }),
    );
    orders.hidden = record.orders.length < 2;
    for (const figure of why.querySelectorAll("figure")) {
      const answers = new Set(record.orders.map((one) => one[figure.dataset.method].tokens.join("")));
      figure.querySelector("h4 small").textContent = orders.hidden
        ? ""
        : `${answers.size} ${answers.size === 1 ? "answer" : "answers"} in ${record.orders.length} orders`;
    }
    slider.max = record.num_tokens - 1;
    why.querySelector(".pine-tutorial-source").textContent =
      `${record.is_replaced ? "The last run lacks vanilla, PINE or a second document. " : ""}“${record.question}” ` +
      `${record.source}. Layer ${record.layer}, head ${record.head}: the most decisive head, not a proof. ` +
      "Ribbons: attention on a document; the rest is on the other tokens.";
    why.hidden = false;
    why.nextElementSibling.hidden = true;
    if (isStill()) draw();
    else start();
  };
  watch("value", read);
  read();
};
