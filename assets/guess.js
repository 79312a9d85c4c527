/* Guess first: does vanilla's answer change if the first two documents are swapped? The table of all orders has both
   answers. On a first visit and as the first step of a presentation, the question hides the rest of the page. */
import { boxesOf, closest, glide, h, isSame, isStill } from "../viz/drawing/common.js";
import { isFresh, withStorage } from "./drafts.js";

const SEEN = "pine-explorer-guess";
const MOVE_MS = 600;
const swapped = ([first, second, ...others]) => [second, first, ...others];

let table = null; // element, state, documents and functions of the last table of orders
let pair = null; // orders before and after the swap of the guess, and their answers
let isOver = () => {}; // called when the page is shown

const part = (selector) => table.element.querySelector(`.page-guess ${selector}`);

/* Without access to the storage, each visit would be a first one: then it asks never. */
const wasAsked = () => withStorage((storage) => storage.getItem(SEEN) ?? SEEN) !== SEEN;

/* Return two orders that differ by a swap of the first two documents, and vanilla's answers, with different answers if
   there are such orders: the shown order or else the first one before the swap. Return null if no answers are known. */
export const pairOf = ({ methods, orders, shown }) => {
  const method = methods.find((one) => !one.is_order_invariant);
  if (!method) return null;
  const pairs = [shown, ...orders.keys()].map((before) => {
    const after = orders.findIndex((order) => order.length > 1 && isSame(order, swapped(orders[before] ?? [])));
    return { before, after, answers: [before, after].map((index) => method.answers[index]) };
  });
  const known = pairs
    .filter(({ answers }) => answers.every((answer) => answer?.is_done))
    .map(({ answers, ...orders }) => ({ ...orders, answers: answers.map(({ text }) => text) }));
  return known.find(({ answers: [before, after] }) => before !== after) ?? known[0] ?? null;
};

/* stage: "asking", "answered" or "over". */
const setStage = (stage) => {
  for (const name of ["asking", "answered"]) document.body.classList.toggle(`pine-${name}`, name === stage);
  if (!table) return;
  const section = table.element.querySelector(".page-guess");
  section.hidden = stage === "over";
  section.dataset.stage = stage;
  part("form").hidden = stage !== "asking";
  part("[name=go-on]").hidden = stage !== "answered";
};

const chips = (order) =>
  order.map((document) => {
    const { letter, color, ink } = table.documents[document];
    const badge = h("b", { textContent: letter, style: { background: color, color: ink } });
    return h("li", {}, badge, h("bdi", { textContent: table.state.texts[document] }));
  });

/* Ask, and return true; false if the table has no such answers. */
export const ask = () => {
  pair = table && pairOf(table.state);
  if (!pair) return false;
  const order = table.state.orders[pair.before];
  table.select(pair.before);
  if (part("h2").textContent !== table.state.question) part("form").reset();
  part("h2").textContent = table.state.question;
  part("[data-tally]").replaceChildren();
  part("ol").replaceChildren(...chips(order));
  part("[data-swap]").textContent = `Swap ${table.documents[order[0]].letter} and ${table.documents[order[1]].letter}.`;
  part("del").textContent = "";
  part("ins").textContent = pair.answers[0];
  part("output").textContent = "";
  setStage("asking");
  return true;
};

const swap = () => {
  const list = part("ol");
  const [first, second] = list.children;
  const before = boxesOf([first, second]);
  first.before(second);
  glide(before, { duration: MOVE_MS, easing: "ease-in-out" });
};

/* Return what is true, then whether the guess was, if there was one. */
export const verdictOf = (guess, truth) => {
  const fact = truth === "same" ? "The answer stays the same here." : "The order alone changes the answer.";
  if (!guess) return fact;
  return [fact, guess === truth ? "You guessed it." : `You guessed “${guess}”.`].join(" ");
};

/* Return the guesses of a class as bars: guess, number, share of all, and whether it is true; [] without numbers. */
export const tallyOf = (counts, truth) => {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const bars = Object.entries(counts).map(([guess, count]) => ({ guess, count, share: count / total, isTrue: guess === truth }));
  return total ? bars : [];
};

/* Draw the numbers that a teacher has typed next to the guesses. */
const drawTally = (truth) => {
  const fields = [...table.element.querySelectorAll(".page-guess input")];
  const counts = Object.fromEntries(fields.map(({ name, value }) => [name, Math.max(0, Math.round(Number(value)))]));
  const bars = tallyOf(counts, truth).map(({ guess, count, share, isTrue }) =>
    h(
      "li",
      {},
      h("b", { textContent: (isTrue ? "✓ " : "") + part(`[value=${guess}]`).textContent }),
      h("span", { style: { flexGrow: share }, dataset: { isTrue } }),
      ` ${count}`,
    ),
  );
  part("[data-tally]").replaceChildren(...bars);
};

const answer = (guess) => {
  const { after, answers } = pair;
  const truth = answers[0] === answers[1] ? "same" : "different";
  swap();
  if (truth === "different") part("del").textContent = answers[0];
  part("ins").textContent = answers[1];
  part("output").textContent = verdictOf(guess, truth);
  drawTally(truth);
  setStage("answered");
  part("[name=go-on]").focus();
  setTimeout(() => table.select(after), isStill() ? 0 : MOVE_MS);
};

export const hide = () => setStage("over");

/* Show the answer in the other order; return false if it is shown. */
export const reveal = () => {
  if (!document.body.classList.contains("pine-asking")) return false;
  answer("");
  return true;
};

/* Show the page, and do not ask on the next visit. */
const end = () => {
  hide();
  if (!wasAsked()) localStorage.setItem(SEEN, "1");
  document.querySelector("body:not(.pine-projector) #start-all")?.focus(); // the focused button is hidden
  isOver();
  isOver = () => {};
};

/* Take the current table. On a first visit without a link, ask and call `over` at the end; else return false. */
export const offer = (shown, over) => {
  const isFirst = !table;
  table = shown;
  if (!isFirst || !table.state.source || !isFresh()) return false;
  if (wasAsked() || !ask()) return false;
  isOver = over;
  return true;
};

document.addEventListener("click", ({ target }) => {
  const button = closest(target, ".page-guess button");
  if (!button) return;
  if (button.name === "guess") answer(button.value);
  else end();
});
