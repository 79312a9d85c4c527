/* The documents of the form, one value of one widget. Cards are edited, moved, added, removed and restored here; the
   server gets them as JSON with the next event. Removed cards with their texts are kept until the page is closed, so that
   Undo restores them. */
import { boxesOf, glide } from "../viz/drawing/common.js";

const MAX_STEPS = 200; // of Undo
const EDGE_PX = 28; // distance from the edge of the list or the window at which dragging scrolls
const SELECTED_MS = 1500; // delay after a selected order; longer than a step of Play: only its last order is sent
const SETTLED_MS = 100; // delay of an event that reads other widgets, which one answer of the server may fill, too

let changed = []; // letters of the documents that a challenge changed
let leftOut = -1; // letter of the document that is left out, -1 for none

/* Return the values of an event of the server with the letter of the document that is left out. */
export const withLeftOut = (stop, chosen, key, _, ...values) => [stop, chosen, key, leftOut, ...values];

/* Renumber the letters from 0 without gaps, in the same order. */
export const closeGaps = (slots) =>
  slots.map(({ card, letter }) => ({ card, letter: slots.filter((other) => other.letter < letter).length }));

/* Return the slots with one of them moved. */
export const moveSlot = (slots, from, to) => {
  const rest = slots.filter((_, slot) => slot !== from);
  return [...rest.slice(0, to), slots[from], ...rest.slice(to)];
};

// Direction of the list: a row, or a column on a phone.
const AXES = {
  row: { start: "left", end: "right", at: "clientX", scroll: (by) => [by, 0] },
  column: { start: "top", end: "bottom", at: "clientY", scroll: (by) => [0, by] },
};
const axisOf = (list) => AXES[getComputedStyle(list).gridAutoFlow === "column" ? "row" : "column"];

const scroll = (box, axis, at, start, end) => {
  if (at < start + EDGE_PX) box.scrollBy(...axis.scroll(-EDGE_PX / 2));
  else if (at > end - EDGE_PX) box.scrollBy(...axis.scroll(EDGE_PX / 2));
};

const isEmpty = ({ card }) => !card.title.value.trim() && !card.text.value.trim();

const TOOLS = { up: "Earlier", down: "Later", remove: "Remove" };

const MAX_LINES = 10; // more documents scroll, see the stylesheet

const textOf = (field) => field.value.toWellFormed?.() ?? field.value;

export const mount = ({ element, trigger, props, watch }) => {
  const list = element.querySelector("ol");
  const [add, clear, undo, redo] = element.querySelectorAll(".page-tools button");

  let slots = []; // card and letter by slot
  let past = [];
  let future = [];
  let sent = ""; // last value of this widget
  let isOwn = false; // true after a change of the user since the last value of the server
  let given = []; // texts of the last value of the server
  let hasGiven = true; // true while a document has one of these texts
  let dragged = null;
  let sending = null; // timer

  // Cards ---------------------------------------------------------------------------------------

  const newCard = ({ title = "", text = "", score = null } = {}) => {
    const node = element.querySelector("template").content.firstElementChild.cloneNode(true);
    const part = (selector) => node.querySelector(selector);
    const card = {
      score, // of a retriever
      node,
      badge: part(".page-badge"),
      slot: part(".pine-slot"),
      name: part(".page-card-name"),
      title: part(".page-title"),
      count: part(".page-count"),
      text: part(".page-text"),
      tools: [...node.querySelectorAll(".page-tool")],
      eye: part(".page-eye"),
    };
    card.title.value = title;
    card.text.value = text;
    card.title.readOnly = card.text.readOnly = props.locked;
    return card;
  };

  const nameOf = (letter) => props.words.names[letter];

  const enable = (button, isAble) => button.setAttribute("aria-disabled", String(!isAble)); // keeps the focus

  const drawCard = ({ card, letter, isLeftOut }, slot) => {
    const { words } = props;
    const where = `${words.document} in slot ${slot + 1}`;
    card.node.className = `page-card page-card-${slot + 1}${card.node === dragged ? " page-dragged" : ""}`;
    card.node.classList.toggle("page-left-out", Boolean(isLeftOut));
    card.node.classList.toggle("page-changed", changed.includes(letter));
    card.eye.hidden = !words.hides || slots.length < 2;
    card.eye.ariaPressed = String(Boolean(isLeftOut));
    card.eye.title = `${isLeftOut ? "Show the answers with" : "Show the answers without"} ${nameOf(letter)}`;
    card.eye.setAttribute("aria-label", `Without ${nameOf(letter)}`);
    if (card.badge.dataset.letter !== String(letter)) {
      card.badge.innerHTML = props.badges[letter];
      card.badge.dataset.letter = letter;
    }
    card.slot.textContent = `slot ${slot + 1}` + (card.score === null ? "" : `, score ${card.score}`);
    card.name.textContent = words.owned ? nameOf(letter) : "";
    card.title.hidden = !words.title;
    card.title.placeholder = words.title;
    card.title.setAttribute("aria-label", `${words.title}, ${where}`);
    card.text.placeholder = words.text;
    card.text.setAttribute("aria-label", `Text, ${where}`);
    for (const tool of card.tools) tool.setAttribute("aria-label", `${TOOLS[tool.name]}: ${nameOf(letter)}`);
    const [up, down] = card.tools;
    enable(up, slot > 0);
    enable(down, slot < slots.length - 1);
  };

  /* Put the nodes of the cards in order. The dragged or focused node is not moved: it would lose the focus. */
  const place = () => {
    const nodes = slots.map(({ card }) => card.node);
    for (const node of [...list.children]) if (!nodes.includes(node)) node.remove();
    if (nodes.every((node, slot) => node === list.children[slot])) return;
    const before = boxesOf(list.children);
    before.delete(dragged);
    const held = nodes.indexOf(dragged ?? document.activeElement?.closest(".page-card"));
    for (const node of nodes.slice(0, Math.max(held, 0))) list.insertBefore(node, nodes[held]);
    list.append(...nodes.slice(held + 1));
    glide(before);
  };

  const draw = () => {
    place();
    slots.forEach(drawCard);
    list.setAttribute("aria-label", props.words.documents);
    element.querySelector(".page-more").textContent =
      slots.length > MAX_LINES ? `${slots.length} ${props.words.documents}: scroll for more` : "";
    add.textContent = props.words.add;
    add.hidden = clear.hidden = props.locked;
    enable(add, slots.length < props.most);
    undo.hidden = !past.length && !future.length; // visible while one is enabled, which keeps the focus
    redo.hidden = undo.hidden;
    enable(undo, past.length > 0);
    enable(redo, future.length > 0);
    const letter = slots.find(({ isLeftOut }) => isLeftOut)?.letter ?? -1;
    if (letter === leftOut) return;
    leftOut = letter;
    document.dispatchEvent(new CustomEvent("pine:left-out", { detail: leftOut }));
  };

  const say = (sentence) => {
    element.querySelector("[role=status]").textContent = sentence;
  };

  // Value ---------------------------------------------------------------------------------------

  const send = () => {
    sent = JSON.stringify(
      slots.map(({ card, letter }) => ({
        letter,
        title: textOf(card.title),
        text: textOf(card.text),
        ...(card.score === null ? {} : { score: card.score }),
      })),
    );
    props.value = sent;
    document.dispatchEvent(new CustomEvent("pine:ordered", { detail: slots.map(({ letter }) => letter) }));
    const has = slots.some(({ card }) => given.includes(card.text.value));
    if (has === hasGiven) return;
    hasGiven = has;
    setTimeout(() => trigger("apply"), SETTLED_MS);
  };

  const documentsChanged = () => {
    draw();
    send();
    trigger("input");
  };

  /* Apply an order that was selected in the table of answers. It is no step of Undo: another selection reverts it. */
  const reorder = ({ detail: letters }) => {
    const next = letters.map((letter) => slots.find((slot) => slot.letter === letter));
    if (next.length !== slots.length || next.includes(undefined)) return;
    if (next.every((slot, place) => slot === slots[place])) return;
    slots = next;
    draw();
    send();
    clearTimeout(sending);
    sending = setTimeout(() => trigger("input"), SELECTED_MS);
  };

  /* Create cards, but keep those with equal texts and with them the focus. */
  const read = (value) => {
    const free = slots.map(({ card }) => card);
    return JSON.parse(value).map(({ letter, title, text, score = null }) => {
      const same = free.findIndex(
        (card) => card.title.value === title && card.text.value === text && card.score === score,
      );
      return { card: same < 0 ? newCard({ title, text, score }) : free.splice(same, 1)[0], letter };
    });
  };

  /* Apply one step of Undo. */
  const change = (next, sentence) => {
    past = [...past, slots].slice(-MAX_STEPS);
    future = [];
    slots = next;
    isOwn = true;
    documentsChanged();
    say(sentence);
  };

  /* Apply a value of the server. */
  const applyServerValue = () => {
    given = JSON.parse(props.value).map(({ text }) => text);
    hasGiven = true;
    if (props.value === sent) return;
    if (isOwn) past = [...past, slots].slice(-MAX_STEPS);
    future = [];
    isOwn = false;
    slots = read(props.value);
    documentsChanged();
  };

  const appendDocuments = () => {
    const kept = props.appended.replaces ? [] : closeGaps(slots.filter((slot) => !isEmpty(slot)));
    const appended = props.appended.documents.slice(0, props.most - kept.length);
    const added = appended.map((one, index) => ({ card: newCard(one), letter: kept.length + index }));
    if (added.length) change([...kept, ...added], "");
  };

  const count = () => {
    slots.forEach(({ card }, slot) => {
      card.count.textContent = props.counts[slot] ?? "";
    });
  };

  // User actions ----------------------------------------------------------------------------

  const steps = {
    up: (slot) => step(slot, -1),
    down: (slot) => step(slot, 1),
    leaveOut: (slot) => {
      const { letter, isLeftOut } = slots[slot];
      const next = slots.map((one, at) => ({ ...one, isLeftOut: at === slot && !isLeftOut }));
      change(next, isLeftOut ? `Answers with ${nameOf(letter)}.` : `Answers without ${nameOf(letter)}.`);
    },
    remove: (slot) => {
      const { letter } = slots[slot];
      const next = closeGaps(slots.filter((_, at) => at !== slot));
      change(next, `Removed ${nameOf(letter)}. Undo restores it.`);
      (next[Math.min(slot, next.length - 1)]?.card.tools[2] ?? add).focus();
    },
  };

  const step = (slot, by) => {
    const to = slot + by;
    if (to < 0 || to >= slots.length) return;
    const { card, letter } = slots[slot];
    change(moveSlot(slots, slot, to), `Moved ${nameOf(letter)} to slot ${to + 1} of ${slots.length}.`);
    card.node.scrollIntoView({ block: "nearest" });
  };

  const addOne = () => {
    if (slots.length >= props.most) return say(`Limit reached: at most ${props.most} ${props.words.documents}.`);
    const fresh = { card: newCard(), letter: slots.length };
    change([...slots, fresh], `Added ${nameOf(fresh.letter)}.`);
    fresh.card.text.focus();
  };

  const clearAll = () => {
    change(
      [0, 1].slice(0, props.most).map((letter) => ({ card: newCard(), letter })),
      `Removed all ${props.words.documents}. Undo restores them.`,
    );
  };

  const back = (from, to, sentence) => {
    if (!from.length) return;
    to.push(slots);
    slots = from.pop();
    isOwn = true;
    documentsChanged();
    say(sentence);
  };

  const undoStep = () => back(past, future, "Undone.");
  const redoStep = () => back(future, past, "Redone.");

  const presses = new Map([
    [add, addOne],
    [clear, clearAll],
    [undo, undoStep],
    [redo, redoStep],
  ]);

  const slotOf = (node) => slots.findIndex(({ card }) => card.node === node.closest(".page-card"));

  element.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button || button.getAttribute("aria-disabled") === "true") return;
    if (presses.has(button)) presses.get(button)();
    else steps[button.name](slotOf(button));
  });

  element.addEventListener("input", () => {
    isOwn = true;
    send();
  });

  element.addEventListener("keydown", (event) => {
    const slot = slotOf(event.target);
    const by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    const isCommand = event.ctrlKey || event.metaKey;
    if (by && event.altKey && !isCommand && !event.shiftKey && slot >= 0) step(slot, by);
    else if (isCommand && event.key.toLowerCase() === "z" && !event.target.matches("input, textarea"))
      (event.shiftKey ? redoStep : undoStep)();
    else return;
    event.preventDefault();
  });

  // Dragging ------------------------------------------------------------------------------------

  const drag = (from) => {
    const before = slots;
    const { card, letter } = slots[from];
    const watching = new AbortController();
    dragged = card.node;
    draw();

    const show = (next) => {
      slots = next;
      draw();
    };
    const axis = axisOf(list);
    const pull = (event) => {
      const at = event[axis.at];
      const box = list.getBoundingClientRect();
      scroll(list, axis, at, box[axis.start], box[axis.end]);
      if (axis === AXES.column) scroll(window, axis, at, 0, window.innerHeight);
      const before = slots.filter(({ card: { node } }) => {
        const other = node.getBoundingClientRect();
        return node !== dragged && (other[axis.start] + other[axis.end]) / 2 < at;
      }).length;
      if (slots[before].card !== card) show(moveSlot(slots, slots.findIndex((one) => one.card === card), before));
    };
    const drop = (isKept) => {
      watching.abort();
      dragged = null;
      const next = slots;
      slots = before;
      const to = next.findIndex((one) => one.card === card);
      if (isKept && to !== from) change(next, `Moved ${nameOf(letter)} to slot ${to + 1} of ${next.length}.`);
      else draw();
    };
    const during = { signal: watching.signal };
    document.addEventListener("pointermove", pull, during);
    document.addEventListener("pointerup", () => drop(true), during);
    document.addEventListener("pointercancel", () => drop(false), during);
    document.addEventListener("keydown", ({ key }) => key === "Escape" && drop(false), during);
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button || !event.target.closest(".page-grip, .page-badge")) return;
    event.preventDefault(); // prevents the selection of text
    drag(slotOf(event.target));
  });

  document.addEventListener("pine:order", reorder);
  document.addEventListener("pine:changed", ({ detail }) => {
    changed = detail;
    draw();
  });
  watch("value", applyServerValue);
  watch("words", draw);
  watch("counts", count);
  watch("appended", appendDocuments);
  slots = read(props.value);
  given = slots.map(({ card }) => card.text.value);
  draw();
  send();
};
