/* The table of answers as plain data: texts, marks and places for one selected order. assets/order_table.js draws it. */
import { directionOf, isSame, plural } from "../viz/drawing/common.js";
import { partsOf } from "./ribbons.js";

const MARKS = { true: "✓", false: "✗" };
const WORDS = { true: "correct", false: "incorrect" };
const CUT_OFF = "contains the answer, cut off";
const SHORT_VERDICTS = { tie: "=", "no verdict": "–", "no choice": "–" };
const NUM_SHADES = 6; // of distinct answers, in the stylesheet; as many again are notched
const MAX_BEFORE = 24; // characters of an answer in its chip before its first source, or before it differs

const wordOf = (answer) => (answer.is_cut_off ? CUT_OFF : WORDS[answer.is_correct]);

/* Return the sign of a distinct answer whose shade is that of an earlier one: a letter, or two signs from the 39th on. */
const repeatSign = (number) => (number > 2 * NUM_SHADES ? (number - 2 * NUM_SHADES + 9).toString(36) : "");

const nounOf = ({ nouns }) => nouns?.[0] ?? "verdict";

const valueOf = ({ verdict, text }) => verdict ?? text; // judges are compared by their verdicts

const doneOf = (answers) => answers.filter((answer) => answer?.is_done);

/* Return the indices of the orders by the slot of a document, -1 for the sequence of the run. */
export const sequenceOf = (orders, document) => {
  const slots = orders.map((order) => order.indexOf(document));
  return [...orders.keys()].sort((left, right) => slots[left] - slots[right]);
};

/* Return the index of the order to show once the state changed from `before`: the order of the form, if its answers are
   known; else that of the run, if its orders are others; else the one shown before, -1 for none. */
export const shownAfter = (before, state, entered, shown) => {
  const current = state.orders.findIndex((order) => isSame(order, entered));
  if (current >= 0) return current;
  return isSame(before.flat(), state.orders.flat()) ? shown : state.shown;
};

/* Return the number of each distinct answer, from 1. */
export const answerNumbers = (methods) => {
  const values = new Set(doneOf(methods.flatMap(({ answers }) => answers)).map(valueOf));
  return new Map([...values].map((value, place) => [value, place + 1]));
};

/* Return the mark of an answer: shade or color of the distinct answer, a name for a verdict, a sign whether the answer is
   correct, a description. */
export const markOf = (answer, documents, numbers) => {
  const sign = answer?.is_cut_off ? "(✓)" : (MARKS[answer?.is_correct] ?? "");
  if (!answer?.is_done) return { kind: "open", name: "", sign, says: answer ? "not finished" : "not computed" };
  const { verdict } = answer;
  const number = numbers.get(valueOf(answer));
  const badge = documents.find((one) => one.letter === verdict);
  const name = badge ? verdict : (SHORT_VERDICTS[verdict] ?? repeatSign(number));
  const words = [verdict ? `${nounOf(answer)} ${verdict}` : `answer ${number}`, wordOf(answer)];
  if (!answer.is_comparable) words.push("computed with another dtype than the other orders");
  return {
    kind: wordOf(answer) ?? "done",
    name: answer.is_comparable ? name : `${name}*`,
    sign,
    says: words.filter(Boolean).join(", "),
    ...(badge ? { color: badge.color, ink: badge.ink } : { shade: (number - 1) % NUM_SHADES }),
    isNotched: number > NUM_SHADES,
  };
};

/* Return the number of characters, but the last one, with which another text begins, too. */
const sharedLength = (text, other) => {
  let end = 0;
  while (end < text.length - 1 && text[end] === other[end]) end += 1;
  return end;
};

/* Return the texts, from the word in which they differ, or some characters before the difference, if another text has more
   characters of the beginning, too. Chinese and Japanese have no spaces between words. */
const differences = (texts) =>
  texts.map((text) => {
    const most = Math.max(0, ...texts.filter((other) => other !== text).map((other) => sharedLength(text, other)));
    if (most <= MAX_BEFORE) return text;
    const word = text.slice(0, most).replace(/[^\s\u2e80-\u9fff]+$/u, "").length;
    return `… ${text.slice(Math.max(word, most - MAX_BEFORE)).replace(/^[\p{M}\udc00-\udfff]+/u, "")}`;
  });

/* Return each distinct answer once, with its mark; isCompared: true if one of the compared methods gave it. */
const chipsOf = ({ methods, documents, numbers }) => {
  const chips = [...numbers.keys()].map((value) => {
    const given = methods.flatMap((method) => doneOf(method.answers).map((answer) => [answer, method.is_compared]));
    const same = given.filter(([answer]) => valueOf(answer) === value);
    const [[answer]] = same;
    const text = answer.verdict ? `${nounOf(answer)} ${answer.verdict}` : partsOf(answer, MAX_BEFORE).map((part) => part.text).join("");
    const isCompared = same.some(([, isCompared]) => isCompared);
    return { mark: markOf(answer, documents, numbers), text, title: answer.text, direction: directionOf(answer.text), isCompared };
  });
  const isOnly = ({ text }) => chips.filter((chip) => chip.text === text).length === 1;
  const texts = differences(chips.map((chip) => (isOnly(chip) ? chip.text : chip.title)));
  return chips.map((chip, place) => ({ ...chip, text: texts[place] }));
};

/* Return how many answers of a method are correct and distinct, as a text. */
export const countText = ({ answers }) => {
  const done = doneOf(answers);
  if (!done.length) return "";
  const comparable = done.filter((answer) => answer.is_comparable);
  const kinds = plural(new Set(comparable.map(valueOf)).size, done[0].verdict ? nounOf(done[0]) : "answer");
  if (done[0].is_correct === null) return kinds;
  const numCutOff = done.filter((answer) => answer.is_cut_off).length;
  const correct = `${done.filter((answer) => answer.is_correct).length} of ${done.length} correct`;
  return [correct, numCutOff && `${numCutOff} (✓)`, kinds].filter(Boolean).join(" · ");
};

/* Return a text that names the orders: all, or some of all. */
export const ordersText = (orders, { sampledFrom, sortedBy, letter }) => {
  const count = orders.length;
  const size = orders[0].length;
  const all = Array.from({ length: size }, (_, place) => place + 1).reduce((left, right) => left * right, 1);
  const some = size > sampledFrom ? `${count} of ${all.toLocaleString("en")} orders (sample)` : `${count} of ${all} orders`;
  const text = count === all ? `All ${all} orders` : some;
  return sortedBy < 0 ? text : `${text}, ${letter(sortedBy)} in slot 1 → ${size}`;
};

const tickOf = (table, answer, index, position) => {
  const { orders, documents, numbers, sequence, sortedBy, shown } = table;
  const mark = markOf(answer, documents, numbers);
  const slot = (order) => orders[order].indexOf(sortedBy);
  const label = `Order ${table.nameOf(orders[index])}: ${mark.says}`;
  return {
    ...mark,
    index,
    label,
    title: answer ? `${label}\n${answer.text}` : label,
    isShown: index === shown,
    isNextSlot: position > 0 && slot(index) !== slot(sequence[position - 1]),
  };
};

const rowOf = (table, method, state) => {
  const answer = method.answers[table.shown];
  const bars = method.positions[table.shown] ?? [];
  const places = [...bars].sort((left, right) => left.left - right.left).map(({ document }) => table.letter(document));
  const token = answer?.token;
  return {
    method,
    answer,
    bars,
    query: method.queries[table.shown],
    leftOut: table.leftOut,
    barsLabel: bars.length ? `From far to near: ${places.join(" ")}` : state.no_positions,
    laneTitle: token ? `Positions for the query token “${token.trim()}”` : "",
    mark: markOf(answer, table.documents, table.numbers),
    markTitle: answer?.is_correct === null ? "" : (answer?.is_cut_off ? `${CUT_OFF}; ` : "") + state.rule,
    isMuted: !answer || (!answer.is_done && !state.is_busy), // none, or one that was stopped
    without: table.leftOut < 0 ? null : { name: `without ${table.letter(table.leftOut)}:`, text: answer?.without?.[table.leftOut] ?? "…" },
    text: answer?.text ?? (state.is_busy ? "…" : "not computed in this order"),
    ticks: table.sequence.map((index, position) => tickOf(table, method.answers[index], index, position)),
    count: countText(method),
    countTitle: method.answers.some((one) => one?.is_cut_off) ? `(✓) ${CUT_OFF}` : "",
  };
};

/* Return the table.

   state: JSON of viz/page/answers/order_table.py. documents: letter, color and ink of each. shown: index of the selected
   order, -1 for one that was not computed. leftOut: document that is left out, -1 for none. sortedBy: document whose slot sorts the orders, -1 for none. */
export const tableOf = (state, { documents, shown, sortedBy, sampledFrom, leftOut = -1 }) => {
  const { orders, methods } = state;
  const letter = (document) => documents[document].letter;
  const nameOf = (order) => order.map(letter).join(" ");
  const sequence = sequenceOf(orders, sortedBy);
  const numbers = answerNumbers(methods);
  const table = { orders, methods, documents, shown, leftOut, sortedBy, letter, nameOf, sequence, numbers };
  const except = leftOut < 0 ? "" : `, without ${letter(leftOut)}`;
  const shownText = () =>
    shown < 0 ? "This order is not computed." : `Order ${sequence.indexOf(shown) + 1} of ${orders.length}: ${nameOf(orders[shown])}${except}`;
  return {
    sequence,
    status: orders.length ? shownText() : "No results yet.",
    orders: orders.length ? ordersText(orders, { sampledFrom, sortedBy, letter }) : "Orders",
    chips: chipsOf(table),
    rows: methods.map((method) => rowOf(table, method, state)),
  };
};
