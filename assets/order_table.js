/* The first figure of the page: the answer of each method in each document order. The slider, a click on a mark, a
   dragged document and Play (assets/start.js) select an order; documents, bars and answers are updated. Nothing is
   computed here: viz/page/answers/order_table.py decides which answers are correct. */
import { h, isSame, isStill } from "../viz/drawing/common.js";
import { compare, markWords } from "./answers.js";
import { offer } from "./guess.js";
import { shownAfter, tableOf } from "./order_rows.js";
import { joinAnswer } from "./ribbons.js";

const STEP_MS = 1100;
const isTouch = matchMedia("(hover: none)");
const SHORT_STRIP = 12; // orders in cells of full width

let latest = null; // state, documents and sequence of orders of the table

/* Return the state of the table for the card that is shared. */
export const currentTable = () => latest;

const newRow = (template, method) => {
  const row = template.content.firstElementChild.cloneNode(true);
  row.dataset.method = method.name;
  row.classList.toggle("page-invariant", method.is_order_invariant);
  const name = row.querySelector("th b");
  name.textContent = method.label;
  name.dataset.sign = method.sign;
  name.style.setProperty("--method", method.color);
  if (method.term) name.dataset.term = method.term;
  else name.removeAttribute("tabindex");
  // On a phone there is no header, and nothing else to do with a bar.
  if (isTouch.matches) row.querySelector(".page-lane").dataset.term = "term-Positions";
  row.querySelector("th span").textContent = method.note;
  return row;
};

/* Mark the question and the documents that a challenge changed, and show them. */
const markChanges = (changed) => {
  document.getElementById("question")?.classList.toggle("page-changed", Boolean(changed?.question));
  document.dispatchEvent(new CustomEvent("pine:changed", { detail: changed?.documents ?? [] }));
  if (changed) document.querySelector(".page-question").scrollIntoView({ block: "nearest" });
};

/* Keep the bar of each document, so that a change of its place is a motion. */
const drawBars = (lane, bars, documents, leftOut) => {
  const kept = new Map([...lane.children].map((bar) => [Number(bar.dataset.document), bar]));
  for (const [document, bar] of kept) if (!bars.some((one) => one.document === document)) bar.remove();
  for (const { document, left, width, top, height } of bars) {
    const bar = kept.get(document) ?? lane.appendChild(h("span", { dataset: { document } }));
    const { letter, color, ink } = documents[document];
    bar.textContent = height < 0.3 ? "" : letter; // a thinner bar has no room for it
    Object.assign(bar.style, {
      background: color,
      color: ink,
      left: `${100 * left}%`,
      width: `calc(${100 * width}% - 2px)`,
      top: `${100 * top}%`,
      height: `calc(${100 * height}% - 2px)`,
    });
    bar.classList.toggle("page-left-out", document === leftOut);
  }
};

const drawMark = (node, { kind, isNotched, color = "", ink = "", shade = "" }, text, label) => {
  Object.assign(node, { textContent: text, role: "img", ariaLabel: label });
  Object.assign(node.dataset, { kind, shade });
  node.toggleAttribute("data-notched", Boolean(isNotched));
  Object.assign(node.style, { backgroundColor: color, color: ink });
};

const drawTicks = (place, ticks) => {
  while (place.children.length > ticks.length) place.lastChild.remove();
  while (place.children.length < ticks.length) place.append(h("span"));
  ticks.forEach((tick, position) => {
    const node = place.children[position];
    drawMark(node, tick, tick.name, tick.label);
    node.dataset.index = tick.index;
    node.title = tick.title;
    node.toggleAttribute("data-shown", tick.isShown);
    node.toggleAttribute("data-next-slot", tick.isNextSlot);
  });
};

/* Draw each distinct answer once; `hasOthers`: also those that only the methods in the fold gave. */
const drawChips = (place, chips, hasOthers) => {
  const nodes = chips.filter(({ isCompared }) => isCompared || hasOthers).map(({ mark, text, title, direction }) => {
    const shade = h("i", { role: "img" });
    drawMark(shade, mark, mark.name + mark.sign, mark.says);
    return h("li", {}, shade, h("span", { textContent: text, title, dir: direction, translate: false }));
  });
  place.replaceChildren(...nodes);
};

/* Draw the answer without a document below the answer, with the words that the answer lacks marked. */
const drawWithout = (place, without, answer) => {
  place.hidden = !without;
  if (!without) return;
  const [, words] = compare([answer?.is_done ? answer.text : without.text, without.text]);
  place.replaceChildren(h("small", { textContent: without.name }), " ", markWords(words));
};

const drawRow = (node, row, documents) => {
  const [, { firstElementChild: lane }, { children: [cell, without] }, strip] = node.children;
  const [mark, text] = cell.children;
  const [ticks, count] = [strip.firstElementChild, strip.lastElementChild];
  lane.style.setProperty("--query", row.query ?? "");
  drawBars(lane, row.bars, documents, row.leftOut);
  lane.setAttribute("aria-label", row.barsLabel);
  lane.parentElement.title = row.laneTitle;
  drawMark(mark, row.mark, row.mark.name + row.mark.sign, row.mark.says);
  mark.hidden = !row.answer?.is_done;
  mark.title = row.markTitle;
  text.textContent = row.text;
  text.className = row.isMuted ? "pine-muted" : "";
  cell.title = row.answer?.text ?? "";
  joinAnswer({ lane, text, answer: row.answer, label: row.method.label, documents, isJoined: !row.without });
  drawWithout(without, row.without, row.answer);
  drawTicks(ticks, row.ticks);
  Object.assign(count, { textContent: row.count, title: row.countTitle });
};

export const mount = ({ element, props, watch }) => {
  const part = (selector) => element.querySelector(selector);
  const slider = part("[name=order]");
  const sort = part("[name=sort]");
  const rows = new Map(); // by method
  let state = { methods: [], orders: [] };
  let shown = 0; // index of the order; -1 for one that was not computed
  let leftOut = -1; // document without which the answers are shown, -1 for none
  let sortedBy = -1; // document whose slot sorts the orders; -1 for none
  let sequence = []; // indices of the orders, as they are shown and played
  let entered = []; // order of the documents in the form
  let timer = null;
  let first = -1; // index of the order before an animation that started by itself
  let left = 0; // orders that the animation has yet to show

  // Drawing

  const fold = h("tr", { className: "page-fold" }, h("th", { colSpan: 4 }, h("button", { type: "button", ariaExpanded: "false" })));
  fold.querySelector("button").addEventListener("click", ({ target }) => {
    target.ariaExpanded = String(target.ariaExpanded === "false");
    draw();
  });

  /* Return the rows of the table: the compared methods, and a fold with the others. */
  const tableRows = () => {
    const [compared, others] = [true, false].map((isCompared) =>
      state.methods.filter((method) => method.is_compared === isCompared).map(({ name }) => rows.get(name)),
    );
    const button = fold.querySelector("button");
    button.textContent = `${others.length} other ${others.length === 1 ? "method" : "methods"}`;
    for (const row of compared) row.hidden = false;
    for (const row of others) row.hidden = button.ariaExpanded === "false";
    return others.length ? [...compared, fold, ...others] : compared;
  };

  /* Keep the rows of the methods that the table has, and create others. */
  const placeRows = () => {
    const names = state.methods.map(({ name }) => name);
    for (const [name, row] of rows) {
      if (names.includes(name)) continue;
      row.remove();
      rows.delete(name);
    }
    for (const method of state.methods) {
      if (!rows.has(method.name)) rows.set(method.name, newRow(part("template"), method));
    }
    const [body, nodes] = [part("tbody"), tableRows()];
    if (!isSame(nodes, [...body.children])) body.replaceChildren(...nodes);
  };

  const drawSort = () => {
    const letters = [...(state.orders[0] ?? [])].sort((left, right) => left - right);
    if (!letters.includes(sortedBy)) sortedBy = -1;
    const slots = letters.map((document) => [document, `slot of ${props.documents[document].letter}`]);
    const options = [[-1, "run"], ...slots];
    if (sort.options.length !== options.length)
      sort.replaceChildren(...options.map(([document, text]) => new Option(text, document)));
    sort.value = sortedBy;
    sort.parentElement.hidden = state.orders.length < 2;
  };

  const draw = () => {
    const { documents, all_up_to: sampledFrom } = props;
    drawSort();
    const table = tableOf(state, { documents, shown, sortedBy, sampledFrom, leftOut });
    ({ sequence } = table);
    placeRows();
    for (const row of table.rows) drawRow(rows.get(row.method.name), row, documents);
    latest = { state, documents, sequence };
    part(".page-order-table").toggleAttribute("data-strip", state.orders.length > SHORT_STRIP);
    drawChips(part(".page-chips"), table.chips, fold.querySelector("button").ariaExpanded === "true");
    part("[data-query]").textContent = state.query_token ? ` for the query token “${state.query_token.trim()}”` : "";
    part("[data-orders]").textContent = table.orders;
    Object.assign(slider, { hidden: state.orders.length < 2, max: state.orders.length - 1 });
    slider.value = sequence.indexOf(shown);
    slider.setAttribute("aria-valuetext", table.status);
    part(".page-order-head h2").textContent = state.headline;
    part("[data-click-target=challenge-back]").hidden = !state.changed;
    part(".page-order-source").hidden = !state.source;
    part(".page-order-source span").textContent = state.source;
    part(".page-order-source button").textContent = state.rerun;
    part("[data-base-rate]").hidden = state.rerun !== "Run live";
    part("[data-base-rate]").textContent = state.base_rate;
    part("[role=status]").textContent = table.status;
  };

  // Selecting

  const select = (index) => {
    shown = index;
    draw();
    document.dispatchEvent(new CustomEvent("pine:order", { detail: state.orders[index] }));
  };

  const setTimer = (started) => {
    clearInterval(timer);
    timer = started;
    document.dispatchEvent(new CustomEvent("pine:playing", { detail: Boolean(timer) }));
  };

  const pause = () => {
    setTimer(null);
    draw();
  };

  const start = (from = -1) => {
    first = from;
    left = state.orders.length;
    const step = () => {
      left -= 1;
      if (left < 0 || state.is_busy) return pause();
      select(sequence[(sequence.indexOf(shown) + 1) % sequence.length]);
    };
    setTimer(setInterval(step, STEP_MS));
  };

  document.addEventListener("pine:play", ({ detail }) => {
    if (detail) read(detail);
    if (timer) pause();
    else if (state.orders.length > 1) start();
  });

  element.addEventListener("click", ({ target }) => {
    const tick = target.closest(".page-ticks span");
    if (tick) {
      pause();
      select(Number(tick.dataset.index));
    }
  });

  slider.addEventListener("input", () => {
    const index = sequence[slider.value];
    pause();
    select(index);
  });

  sort.addEventListener("change", () => {
    sortedBy = Number(sort.value);
    draw();
  });

  document.addEventListener("pine:left-out", ({ detail }) => {
    leftOut = detail;
    pause();
    const isMissing = state.methods.some(({ answers }) => answers[shown]?.without?.[leftOut] == null);
    const isRunning = document.querySelector("#stop-without:not(:disabled)");
    if (leftOut >= 0 && isMissing && !isRunning) document.getElementById("without").click();
  });

  document.addEventListener("pine:ordered", ({ detail }) => {
    entered = detail;
    if (state.orders.length === 0 || state.orders[0].length !== entered.length) return;
    const index = state.orders.findIndex((order) => isSame(order, entered));
    if (timer && index !== shown) {
      // Such as that of a restored draft, which is the order to end with.
      if (first >= 0) first = index;
      left = state.orders.length;
      if (index < 0) pause();
    }
    shown = index;
    draw();
  });

  // Any other action ends the animation. One that started by itself returns to its first order, unless the action is
  // in the documents, which must not move away from the pointer.
  const interrupt = ({ target }) => {
    if (!timer || element.contains(target) || target.id === "start-all") return;
    if (document.body.classList.contains("pine-projector")) return; // Space pauses
    pause();
    if (first >= 0 && !target.closest?.("#documents")) select(first);
  };
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, interrupt, true);

  const read = (value = props.value) => {
    const before = state;
    state = JSON.parse(value);
    if (!isSame(before.orders.flat(), state.orders.flat())) setTimer(null);
    shown = shownAfter(before.orders, state, entered, shown);
    markChanges(state.changed);
    draw();
    return offer({ element, state, documents: props.documents, select }, playOnce);
  };

  /* Play the recorded answers of the first example, when the page opens. */
  const playOnce = () => {
    if (state.source && !isStill()) start(shown);
  };

  watch("value", () => read());
  if (!read()) playOnce();
};
