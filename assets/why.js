/* Tab "Why": mask, importance and positions of vanilla and PINE side by side, drawn from the JSON of viz/page/why.py. A
   word of the answer is the query of the last two steps; another document order moves what depends on it.
   assets/tutorial.js turns the steps, assets/ribbons.js draws the ribbons. */
import { h, isStill, plural, svg } from "../viz/drawing/common.js";
import { mount as mountRibbons } from "./ribbons.js";
import { importanceOf, maskOf, positionsOf, withoutOf, wordsOf } from "./why_steps.js";

const METHODS = ["vanilla", "pine"];
const STEP_MS = 900; // before a step plays
const TOKEN_MS = 650;
const CELL = 40; // of the mask, in its own units

/* Return the child of a class, created if there is none, so that a change of its place is a motion. */
const child = (parent, className, tag = "div") =>
  parent.querySelector(`:scope > .${className}`) ?? parent.appendChild(h(tag, { className }));

/* Return one child for each document. */
const bars = (stage, record, className) => {
  const made = stage.querySelectorAll(`.${className}`);
  if (made.length) return [...made];
  return record.documents.map(({ letter, text, color, ink }, document) => {
    const label = h("span", { translate: false }, h("b", { textContent: letter }), " ", h("bdi", { textContent: text }));
    const style = { background: color, color: ink };
    const title = `Document ${letter}: ${text}`;
    return stage.appendChild(h("div", { className, title, style, dataset: { document } }, label));
  });
};

// Mask: rows attend to columns

const badge = ({ letter, color, ink }, x, y) => {
  const side = CELL - 8;
  const style = `fill:${color}`;
  const place = { x: x + CELL / 2, y: y + CELL * 0.66 };
  return [
    svg("rect", { x: x + 4, y: y + 4, width: side, height: side, rx: 7, style }),
    svg("text", { ...place, style: `fill:${ink}`, class: "page-why-letter" }, letter),
  ];
};

const cell = (kind, row, column) => {
  const [x, y] = [CELL * (column + 1) + 1, CELL * (row + 1) + 1];
  const shape = { x, y, width: CELL - 2, height: CELL - 2, rx: 3 };
  const drawn = [svg("rect", { ...shape, class: "page-why-cell" })];
  if (kind === "self") drawn.push(svg("path", { d: `M${x},${y} v${CELL - 2} h${CELL - 2} Z`, class: "page-why-seen" }));
  if (kind === "seen") drawn.push(svg("rect", { ...shape, class: "page-why-seen" }));
  if (kind === "added") {
    const style = `transition-delay:${60 * (row + column)}ms`;
    drawn.push(svg("rect", { ...shape, style, class: "page-why-seen page-why-added" }));
  }
  return drawn;
};

const maskPicture = (mask, record) => {
  const side = CELL * (mask.rows.length + 1);
  const note = { x: side + 10, class: "page-why-note" };
  const viewBox = `-44 -4 ${side + 150} ${side + 8}`;
  const picture = svg("svg", { viewBox, role: "img", "aria-label": mask.label, "data-rows": mask.documents });
  picture.append(svg("text", { ...note, y: CELL * 0.65 }, "attends to"));
  mask.rows.forEach(({ name, document, says, cells }, row) => {
    const y = CELL * (row + 1);
    const middle = y + CELL * 0.64;
    if (name) picture.append(svg("text", { ...note, x: CELL - 8, y: middle, "text-anchor": "end" }, name));
    else {
      const { [document]: drawn } = record.documents;
      picture.append(...badge(drawn, 0, y), ...badge(drawn, y, 0), svg("text", { x: side + 10, y: middle }, says));
    }
    picture.append(...cells.flatMap((kind, column) => cell(kind, row, column)));
  });
  return picture;
};

const drawMask = ({ stage, record, method, order, phase }) => {
  const mask = maskOf(record, { method, order });
  const old = stage.firstElementChild;
  // The cells of the same picture fade in; another order draws another picture.
  const isOld = old?.dataset.rows === String(mask.documents);
  const picture = isOld ? old : maskPicture(mask, record);
  for (const added of picture.querySelectorAll(".page-why-added")) added.style.opacity = phase ? 1 : 0;
  if (!isOld) stage.replaceChildren(picture);
  return mask.caption;
};

// Importance: columns that slide into the order of a query

const drawImportance = ({ stage, record, answer, order, token, phase }) => {
  const { query, columns, caption } = importanceOf(record, { answer, order, token, isSorted: Boolean(phase) });
  const width = 100 / columns.length;
  child(stage, "page-why-query").replaceChildren(h("small", { textContent: "writes" }), query);
  const area = child(stage, "page-why-columns");
  bars(area, record, "page-why-column").forEach((column, document) => {
    const { place, share, number } = columns[document];
    const score = child(column, "page-why-score");
    score.replaceChildren(h("span", { textContent: number }));
    score.style.setProperty("--height", share ?? 0);
    score.style.background = record.documents[document].color;
    Object.assign(column.style, { left: `${width * place}%`, width: `calc(${width}% - 4px)` });
  });
  if (columns[0].share === null) drawDistances(area, record, columns);
  return caption;
};

/* Draw an arc from each document to the query. */
const drawDistances = (area, record, columns) => {
  const frame = { viewBox: "0 0 100 100", preserveAspectRatio: "none", class: "page-why-arcs", "aria-hidden": "true" };
  const drawing = area.querySelector("svg") ?? area.appendChild(svg("svg", frame));
  const count = columns.length;
  const query = area.parentElement.querySelector(".page-why-query");
  const to = (100 * query.offsetLeft + 50 * query.offsetWidth) / area.offsetWidth;
  const arcs = columns.map(({ place }, document) => {
    const [from, high] = [(100 / count) * (place + 0.5), 100 - (120 * (count - place)) / count];
    const style = `stroke:${record.documents[document].color}`;
    return svg("path", { d: `M${from},100 C${from},${high} ${to},${high} ${to},100`, style });
  });
  drawing.replaceChildren(...arcs);
};

// Positions: documents on a ruler, ribbons to the word that is decoded

const drawRuler = (ruler, record, { bars: places, question, query }) => {
  const drawn = bars(ruler, record, "page-why-bar");
  drawn.forEach((bar, document) => {
    const { left, width, start } = places[document];
    Object.assign(bar.style, { left: `${left}%`, width: `calc(${width}% - 3px)` });
    const tick = bar.querySelector("small") ?? bar.appendChild(h("small"));
    tick.textContent = start;
  });
  const asked = child(ruler, "page-why-asked");
  asked.replaceChildren(h("span", { textContent: question.text, translate: false, dir: "auto" }));
  Object.assign(asked.style, { left: `${question.left}%`, width: `calc(${question.width}% - 3px)` });
  const mark = child(ruler, "page-why-mark");
  mark.replaceChildren(h("small", { textContent: query.text }));
  mark.style.left = `${query.left}%`;
  return drawn;
};

/* Draw the words of an answer as buttons; return the piece of the query. */
const drawWords = (text, record, { answer, token, written, select }) => {
  text.translate = false;
  text.dir = "auto";
  text.replaceChildren();
  for (const { blank, pieces, token: strongest } of wordsOf(answer)) {
    const word = h("button", { type: "button", tabIndex: -1 });
    word.toggleAttribute("data-unwritten", pieces[0].token > written); // a button in view needs a name
    word.addEventListener("click", () => select(strongest));
    for (const piece of pieces) {
      const part = word.appendChild(h("span", { textContent: piece.text }));
      if (piece.document !== null) part.style.setProperty("--pine-fill", record.documents[piece.document].color);
      part.toggleAttribute("data-query", piece.token === token);
      part.toggleAttribute("data-unwritten", piece.token > written);
    }
    text.append(blank, word);
  }
  return text.querySelector("[data-query]");
};

const drawPositions = ({ stage, record, method, answer, token, written, select }) => {
  const positions = positionsOf(record, { method, answer, token });
  const drawn = drawRuler(child(stage, "page-why-ruler"), record, positions);
  const word = drawWords(child(stage, "page-why-words"), record, { answer, token, written, select });
  stage.ribbons ??= mountRibbons(stage);
  const ends = drawn.map((bar, document) => {
    return { bar, word, share: positions.bars[document].share, color: record.documents[document].color };
  });
  stage.ribbons.show(ends);
  return positions.caption;
};

const DRAW = [drawMask, drawImportance, drawPositions];

// The tab

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
  let leftOut = -1; // document whose eye is closed, -1 for none

  const current = () => steps.findIndex((step) => step.classList.contains("pine-current"));

  const draw = () => {
    const index = current();
    const shown = written < Infinity ? written : token;
    const answers = record.orders[order];
    for (const figure of steps[index].querySelectorAll("figure")) {
      const method = figure.dataset.method;
      const answer = answers[method];
      const stage = figure.querySelector(".page-why-stage");
      const token = Math.min(shown ?? answer.token, answer.tokens.length - 1);
      const given = { stage, record, method, answer, order: answers.order, token, phase, written, select };
      const caption = DRAW[index](given);
      figure.querySelector("figcaption").textContent = withoutOf(record, answer, leftOut) || caption;
      for (const node of stage.querySelectorAll("[data-document]")) {
        node.classList.toggle("page-left-out", Number(node.dataset.document) === leftOut);
      }
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

  document.addEventListener("pine:left-out", ({ detail }) => {
    leftOut = detail;
    if (record) draw();
  });
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
  // A presentation holds a step before it has played, and then reveals it.
  why.addEventListener("pine:hold", () => {
    stop();
    if (current() < 2) phase = 0;
    else written = 0;
    draw();
  });
  why.addEventListener("pine:reveal", (event) => {
    if (timer || (phase && written === Infinity)) return;
    event.preventDefault();
    if (current() === 2 && !isStill()) return start();
    stop();
    draw();
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
        const button = h("button", { type: "button", textContent: name, dataset: { index } });
        button.addEventListener("click", () => change({ order: index }));
        return button;
      }),
    );
    orders.hidden = record.orders.length < 2;
    for (const figure of why.querySelectorAll("figure")) {
      const answers = new Set(record.orders.map((one) => one[figure.dataset.method].tokens.join("")));
      figure.querySelector("h4 small").textContent = orders.hidden
        ? ""
        : `${plural(answers.size, "answer")} in ${record.orders.length} orders`;
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
