/* The first figure of the page: the answer of each method in each document order. The slider, a click on a mark, a
   dragged document and Play (assets/start.js) select an order; documents, bars and answers are updated. Nothing is
   computed here: viz/page/answers/order_table.py decides which answers are correct. */
import { isSame, isStill, plural } from "../viz/drawing/common.js";
import { offer } from "./guess.js";
import { joinAnswer } from "./ribbons.js";

const STEP_MS = 1100;
const isTouch = matchMedia("(hover: none)");
const MARKS = { true: "✓", false: "✗" };
const WORDS = { true: "correct", false: "incorrect" };
const CUT_OFF = "contains the answer, cut off";
const wordOf = (answer) => (answer.is_cut_off ? CUT_OFF : WORDS[answer.is_correct]);
const SHORT_VERDICTS = { tie: "=", "no verdict": "–" };
const MAX_UNGROUPED = 8; // methods
const SHORT_STRIP = 12; // orders on one line
const NUM_SHADES = 6; // of distinct answers, in the stylesheet

let latest = null; // state, documents and sequence of orders of the table

/* Return the state of the table for the card that is shared. */
export const currentTable = () => latest;

export const mount = ({ element, props, watch }) => {
  const part = (selector) => element.querySelector(selector);
  const slider = part("[name=order]");
  const sort = part("[name=sort]");
  const rows = new Map(); // by method
  const groups = new Map(); // row of each group of methods
  const folded = new Set(); // names of groups
  let state = { methods: [], orders: [] };
  let shown = 0; // index of the order; -1 for one that was not computed
  let sortedBy = -1; // document whose slot sorts the orders; -1 for none
  let sequence = []; // indices of the orders, as they are shown and played
  let numbers = new Map(); // number of each distinct answer
  let entered = []; // order of the documents in the form
  let timer = null;
  let first = -1; // index of the order before an animation that started by itself
  let left = 0; // orders that the animation has yet to show

  const letter = (document) => props.documents[document].letter;
  const nameOf = (order) => order.map(letter).join(" ");

  // Drawing ---------------------------------------------------------------------------------------

  const newRow = (method) => {
    const row = part("template").content.firstElementChild.cloneNode(true);
    row.dataset.method = method.name;
    row.classList.toggle("page-invariant", method.is_order_invariant);
    const name = row.querySelector("th b");
    name.textContent = method.label;
    if (method.term) Object.assign(name.dataset, { term: method.term });
    else name.removeAttribute("tabindex");
    // On a phone there is no header, and nothing else to do with a bar.
    if (isTouch.matches) row.querySelector(".page-lane").dataset.term = "term-Positions";
    row.querySelector("th span").textContent = method.note;
    return row;
  };

  const newGroup = (name) => {
    const row = document.createElement("tr");
    row.className = "page-group";
    const cell = Object.assign(row.appendChild(document.createElement("th")), { colSpan: 4, scope: "rowgroup" });
    const button = Object.assign(cell.appendChild(document.createElement("button")), { type: "button" });
    button.addEventListener("click", () => {
      if (!folded.delete(name)) folded.add(name);
      draw();
    });
    if (groups.size) folded.add(name); // the first is open
    groups.set(name, row);
    return row;
  };

  /* Return the rows of the table; those of many methods are in groups. */
  const tableRows = () => {
    const names = new Set(state.methods.map(({ group }) => group));
    const isGrouped = state.methods.length > MAX_UNGROUPED && names.size > 1;
    part(".page-order-table").toggleAttribute("data-many", isGrouped);
    return [...names].flatMap((name) => {
      const methods = state.methods.filter(({ group }) => group === name);
      const own = methods.map((method) => rows.get(method.name));
      for (const row of own) row.hidden = false;
      if (!isGrouped) return own;
      const head = groups.get(name) ?? newGroup(name);
      for (const row of own) row.hidden = folded.has(name);
      const button = head.querySelector("button");
      button.textContent = `${name} (${methods.length})`;
      button.setAttribute("aria-expanded", !folded.has(name));
      return [head, ...own];
    });
  };

  const drawBars = (lane, bars) => {
    const places = [...bars].sort((left, right) => left.left - right.left);
    lane.setAttribute(
      "aria-label",
      bars.length ? `From far to near: ${places.map(({ document }) => letter(document)).join(" ")}` : state.no_positions,
    );
    const kept = new Map([...lane.children].map((bar) => [Number(bar.dataset.document), bar]));
    for (const [document, bar] of kept) if (!bars.some((one) => one.document === document)) bar.remove();
    for (const { document, left, width, top, height } of bars) {
      const bar = kept.get(document) ?? lane.appendChild(window.document.createElement("span"));
      const { color, ink } = props.documents[document];
      bar.dataset.document = document;
      bar.textContent = height < 0.3 ? "" : letter(document); // a thinner bar has no room for it
      Object.assign(bar.style, {
        background: color,
        color: ink,
        left: `${100 * left}%`,
        width: `calc(${100 * width}% - 2px)`,
        top: `${100 * top}%`,
        height: `calc(${100 * height}% - 2px)`,
      });
      bar.classList.toggle("page-thin", height < 0.5);
    }
  };

  const valueOf = ({ verdict, text }) => verdict ?? text; // judges are compared by their verdicts

  const slotOf = (index) => state.orders[index].indexOf(sortedBy);

  const readAnswers = () => {
    const done = state.methods.flatMap(({ answers }) => answers).filter((answer) => answer?.is_done);
    numbers = new Map([...new Set(done.map(valueOf))].map((value, place) => [value, place + 1]));
    sequence = [...state.orders.keys()].sort((left, right) => slotOf(left) - slotOf(right));
  };

  const kindOf = (answer) => (answer?.is_done ? (wordOf(answer) ?? "done") : "open");

  /* Draw the distinct answer, and as a second mark whether it is correct; return a description. */
  const drawMark = (node, answer) => {
    const kind = kindOf(answer);
    const [name, mark] = node.children.length ? node.children : ["b", "i"].map((tag) => node.appendChild(document.createElement(tag)));
    node.dataset.kind = kind;
    mark.textContent = answer?.is_cut_off ? "(✓)" : (MARKS[answer?.is_correct] ?? "");
    name.removeAttribute("style");
    delete name.dataset.shade;
    if (kind === "open") {
      name.textContent = answer ? "…" : "·";
      return answer ? "not finished" : "not computed";
    }
    const { verdict } = answer;
    const number = numbers.get(valueOf(answer));
    const badge = props.documents.find((one) => one.letter === verdict);
    if (badge) Object.assign(name.style, { background: badge.color, color: badge.ink });
    else name.dataset.shade = (number - 1) % NUM_SHADES;
    name.textContent = `${badge ? verdict : (SHORT_VERDICTS[verdict] ?? number)}${answer.is_comparable ? "" : "*"}`;
    const words = [verdict ? `verdict ${verdict}` : `answer ${number}`, wordOf(answer)];
    if (!answer.is_comparable) words.push("computed with another dtype than the other orders");
    return words.filter(Boolean).join(", ");
  };

  const drawTicks = (place, method) => {
    while (place.children.length > sequence.length) place.lastChild.remove();
    while (place.children.length < sequence.length) {
      const tick = place.appendChild(document.createElement("span"));
      tick.setAttribute("role", "img");
    }
    place.toggleAttribute("data-lines", sortedBy >= 0 && sequence.length > SHORT_STRIP);
    sequence.forEach((index, position) => {
      const tick = place.children[position];
      const answer = method.answers[index];
      const name = `Order ${nameOf(state.orders[index])}: ${drawMark(tick, answer)}`;
      tick.dataset.index = index;
      tick.toggleAttribute("data-shown", index === shown);
      tick.toggleAttribute("data-next-slot", position > 0 && slotOf(index) !== slotOf(sequence[position - 1]));
      tick.title = answer ? `${name}\n${answer.text}` : name;
      tick.setAttribute("aria-label", name);
    });
  };

  const countOf = ({ answers }) => {
    const done = answers.filter((answer) => answer?.is_done);
    if (!done.length) return "";
    const comparable = done.filter((answer) => answer.is_comparable);
    const noun = done[0].verdict ? "verdict" : "answer";
    const kinds = plural(new Set(comparable.map(valueOf)).size, noun);
    if (done[0].is_correct === null) return kinds;
    const cutOff = done.filter((answer) => answer.is_cut_off).length;
    const correct = `${done.filter((answer) => answer.is_correct).length} of ${done.length} correct`;
    return [correct, cutOff && `${cutOff} (✓)`, kinds].filter(Boolean).join(" · ");
  };

  const drawAnswer = (cell, answer) => {
    const [mark, text] = cell.children;
    mark.setAttribute("aria-label", drawMark(mark, answer));
    mark.hidden = !answer?.is_done;
    mark.title = answer?.is_correct === null ? "" : `${answer?.is_cut_off ? `${CUT_OFF}; ` : ""}${state.rule}`;
    text.textContent = answer?.text ?? (state.is_busy ? "…" : "not computed in this order");
    text.className = answer ? "" : "pine-muted";
    cell.title = answer?.text ?? "";
  };

  const drawRow = (method) => {
    const row = rows.get(method.name);
    const [, lane, answer, ticks] = row.children;
    drawBars(lane.firstElementChild, method.positions[shown] ?? []);
    const token = method.answers[shown]?.origin?.token;
    lane.title = token ? `Positions for the query token “${token.trim()}”` : "";
    drawAnswer(answer.firstElementChild, method.answers[shown]);
    joinAnswer({
      lane: lane.firstElementChild,
      text: answer.firstElementChild.lastElementChild,
      answer: method.answers[shown],
      label: method.label,
      documents: props.documents,
    });
    drawTicks(ticks.firstElementChild, method);
    ticks.lastElementChild.textContent = countOf(method);
    ticks.lastElementChild.title = method.answers.some((one) => one?.is_cut_off) ? `(✓) ${CUT_OFF}` : "";
  };

  const statusText = () => {
    if (!state.orders.length) return "No results yet.";
    if (shown < 0) return "This order is not computed.";
    return `Order ${sequence.indexOf(shown) + 1} of ${state.orders.length}: ${nameOf(state.orders[shown])}`;
  };

  /* Name the orders in the strip: all, or some of all. */
  const ordersText = () => {
    const count = state.orders.length;
    const size = state.orders[0]?.length ?? 0;
    const all = Array.from({ length: size }, (_, place) => place + 1).reduce((left, right) => left * right, 1);
    const some = size > props.all_up_to ? `${count} of ${all.toLocaleString("en")} orders (sample)` : `${count} of ${all} orders`;
    const orders = count === all ? `All ${all} orders` : some;
    return sortedBy < 0 ? orders : `${orders}, ${letter(sortedBy)} in slot 1 → ${size}`;
  };

  const drawSort = () => {
    const letters = [...(state.orders[0] ?? [])].sort((left, right) => left - right);
    if (!letters.includes(sortedBy)) sortedBy = -1;
    const options = [[-1, "run"], ...letters.map((document) => [document, `slot of ${letter(document)}`])];
    if (sort.options.length !== options.length)
      sort.replaceChildren(...options.map(([document, text]) => new Option(text, document)));
    sort.value = sortedBy;
    sort.parentElement.hidden = state.orders.length < 2;
  };

  const draw = () => {
    const body = part("tbody");
    for (const [name, row] of rows) {
      if (state.methods.some((method) => method.name === name)) continue;
      row.remove();
      rows.delete(name);
    }
    for (const method of state.methods) {
      if (!rows.has(method.name)) rows.set(method.name, newRow(method));
    }
    drawSort();
    readAnswers();
    const nodes = tableRows();
    const isSorted = nodes.length === body.children.length && nodes.every((node, at) => node === body.children[at]);
    if (!isSorted) body.replaceChildren(...nodes);
    state.methods.forEach(drawRow);
    latest = { state, documents: props.documents, sequence };
    part(".page-order-table").toggleAttribute("data-strip", state.orders.length > SHORT_STRIP);
    const several = state.orders.length > 1;
    part("[data-query]").textContent = state.query_token ? ` for the query token “${state.query_token.trim()}”` : "";
    part("[data-orders]").textContent = state.orders.length ? ordersText() : "Orders";
    slider.hidden = !several;
    slider.max = state.orders.length - 1;
    slider.value = sequence.indexOf(shown);
    slider.setAttribute("aria-valuetext", statusText());
    part(".page-order-foot strong").textContent = state.finding;
    part("[data-legend]").textContent = state.legend;
    part(".page-order-source").hidden = !state.source;
    part(".page-order-source span").textContent = state.source;
    part(".page-order-source button").textContent = state.rerun;
    part("[data-base-rate]").hidden = state.rerun !== "Run live";
    part("[data-base-rate]").textContent = state.base_rate;
    part("[role=status]").textContent = statusText();
  };

  // Selecting ---------------------------------------------------------------------------------------

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
    const isOther = !isSame(before.orders.flat(), state.orders.flat());
    if (isOther) setTimer(null);
    if (isOther || shown < 0) shown = state.shown;
    const current = state.orders.findIndex((order) => isSame(order, entered));
    if (current >= 0) shown = current;
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
