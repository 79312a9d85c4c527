/* The card that is shared: question, documents, answers of a method that depends on the order and of PINE, and a QR code
   of the link, drawn on a canvas of 1200 x 630 pixels. A picture has the answers in all orders, a video one order after
   the other. Nothing is sent to the server. */
import { directionOf, h, saveFile } from "../viz/drawing/common.js";
import { translated } from "./language.js";
import { moduleOf, QUIET } from "./last_slide.js";
import { currentTable } from "./order_table.js";
import { partsOf } from "./ribbons.js";

const WIDTH = 1200;
const HEIGHT = 630;
const EDGE = 48;
const QR_SIZE = 292; // with the room around the code, between documents and finding
const QR_PLACE = { left: WIDTH - 32 - QR_SIZE, top: 240 };
const TOP = 266; // of the answers
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const INK = "#1c2733";
const MUTED = "#566173";
const MARKS = { true: ["✓", "#0a6b3d"], false: ["✗", "#a8330c"], null: ["", MUTED] };
const CUT_OFF = ["(✓)", MUTED]; // contains the answer, cut off
const FRAMES_PER_S = 30;
const MAX_VIDEO_MS = 12_000;
const STEP_MS = 1200;
const MOVE_MS = 450;
const MAX_ANSWERS = 3; // distinct answers of a method in the picture
const MAX_BEFORE = 24; // characters of an answer in the picture before its decisive word
const [FIRST_STRONG_ISOLATE, POP_ISOLATE] = ["\u2068", "\u2069"]; // around a text with its own direction
const TYPES = ["video/webm;codecs=vp9", "video/webm", "video/mp4"];
const NO_RECORDER = "This browser cannot record a video. Use Chrome, Edge or Firefox, or save the picture.";

const newCanvas = () => h("canvas", { width: WIDTH, height: HEIGHT });

/* Return the lines of a text that fit; the last line ends with … if there are more. */
const wrapped = (context, text, width, maxLines) => {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (context.measureText(longer).width <= width || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  const kept = lines.slice(0, maxLines);
  if (lines.length > maxLines) kept[maxLines - 1] += "…";
  return kept.map((line) => {
    let cut = line;
    while (context.measureText(cut).width > width) cut = `${cut.slice(0, -2)}…`;
    return cut;
  });
};

/* Write a text of some lines, and return the top of what follows. A text from right to left ends at the left. */
const write = (context, text, { x, y, width, size, weight = 400, color = INK, lines = 1, direction = directionOf(text) }) => {
  const start = direction === "rtl" ? x + width : x;
  context.direction = direction;
  context.font = `${weight} ${size}px ${FONT}`;
  context.fillStyle = color;
  context.textBaseline = "top";
  const written = wrapped(context, text, width, lines);
  written.forEach((line, place) => context.fillText(line, start, y + place * size * 1.25));
  return y + written.length * size * 1.25;
};

const box = (context, x, y, width, height, fill, line) => {
  context.beginPath();
  context.roundRect(x, y, width, height, 10);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = line;
  context.lineWidth = 2;
  context.stroke();
};

/* places: slot of each document, a fraction while it moves. */
const drawDocuments = (context, { state, documents }, places) => {
  const count = places.length;
  const gap = 16;
  const width = (WIDTH - 2 * EDGE - gap * (count - 1)) / count;
  places.forEach((slot, document) => {
    const { letter, color, ink } = documents[document];
    const x = EDGE + slot * (width + gap);
    box(context, x, 162, width, 76, "#fff", "#cdd4df");
    box(context, x + 12, 176, 30, 30, color, color);
    write(context, letter, { x: x + 20, y: 182, width: 22, size: 18, weight: 700, color: ink });
    if (width > 120) write(context, state.texts[document], { x: x + 54, y: 174, width: width - 66, size: 20, lines: 2 });
  });
};

/* rows: null for a card without a code. */
const drawQr = (context, rows) => {
  if (!rows) return;
  const module = moduleOf(rows, QR_SIZE);
  const size = module * (rows.length + 2 * QUIET);
  const [left, top] = [QR_PLACE.left, QR_PLACE.top].map((start) => start + Math.floor((QR_SIZE - size) / 2));
  context.fillStyle = "#fff";
  context.fillRect(left, top, size, size);
  context.fillStyle = "#000";
  rows.forEach((row, line) =>
    [...row].forEach((cell, place) => {
      if (cell === "1") context.fillRect(left + module * (place + QUIET), top + module * (line + QUIET), module, module);
    }),
  );
};

/* Return the rows of a code that the card has room for, or null. */
export const fitting = (rows) => (moduleOf(rows, QR_SIZE) ? rows : null);

/* Return what was saved, and why it has no code. */
const withReason = (sentence, rows) =>
  fitting(rows) ? sentence : `${sentence} The link is too long for a QR code. Use “Copy link”.`;

const markOf = (answer) => (answer.is_cut_off ? CUT_OFF : MARKS[answer.is_correct]);

/* Return the distinct answers of a method, the most frequent first, with the number of their orders. */
export const distinctAnswers = ({ answers }) => {
  const counts = new Map();
  for (const answer of answers.filter((one) => one?.is_done)) {
    const key = answer.verdict ?? answer.text;
    const text = partsOf(answer, MAX_BEFORE).map((part) => part.text).join("");
    const count = (counts.get(key)?.count ?? 0) + 1;
    counts.set(key, { text: answer.verdict ?? text, mark: markOf(answer), count });
  }
  return [...counts.values()].sort((left, right) => right.count - left.count);
};

const drawAnswers = (context, { state }, { order, qr }) => {
  const width = (WIDTH - 2 * EDGE - 24 - (qr ? QR_SIZE : 0)) / 2;
  state.methods.filter((method) => method.is_compared).forEach((method, column) => {
    const x = EDGE + column * (width + 24);
    box(context, x, TOP, width, 248, method.is_order_invariant ? "#e8f6ee" : "#fff", "#cdd4df");
    let y = write(context, method.label, { x: x + 20, y: TOP + 18, width: width - 40, size: 28, weight: 700 }) + 8;
    const answers = distinctAnswers(method);
    const total = method.answers.filter((answer) => answer?.is_done).length;
    const [current] = [method.answers[order]].filter((answer) => answer?.is_done);
    const shown = current
      ? [{ text: current.text, mark: markOf(current) }]
      : answers.slice(0, MAX_ANSWERS);
    for (const { text, mark: [mark, color], count } of shown) {
      write(context, mark, { x: x + 20, y, width: 30, size: 22, weight: 700, color });
      const size = current ? 26 : 20;
      const share = translated(`${count} of ${total}:`);
      const full = count ? `${FIRST_STRONG_ISOLATE}${share}${POP_ISOLATE} ${text}` : text;
      const place = { x: x + 48, y, width: width - 66, lines: current ? 4 : 2 };
      y = write(context, full, { ...place, size, weight: 600, direction: directionOf(text) }) + 6;
    }
    const more = answers.length - shown.length;
    if (!current && more > 0)
      write(context, translated(`and ${more} more`), { x: x + 48, y, width: width - 66, size: 18, color: MUTED });
  });
};

/* Draw the card; order: index of the order whose answers are drawn, undefined for all orders. */
const draw = (context, table, { qr, order, places, source }) => {
  const { state } = table;
  context.fillStyle = "#f6f8fb";
  context.fillRect(0, 0, WIDTH, HEIGHT);
  const width = WIDTH - 2 * EDGE;
  const line = order === undefined ? "Same documents, another order. Does the answer change?" : `Order ${table.sequence.indexOf(order) + 1} of ${state.orders.length}`;
  write(context, `PINE Explorer · ${translated(line)}`, { x: EDGE, y: 30, width, size: 22, color: MUTED });
  write(context, state.question || translated("Which answer is better?"), { x: EDGE, y: 70, width, size: 36, weight: 700, lines: 2 });
  drawDocuments(context, table, places);
  drawAnswers(context, table, { order, qr });
  drawQr(context, qr);
  const y = write(context, translated(state.finding), { x: EDGE, y: 530, width, size: 20, weight: 700, lines: 2 });
  write(context, translated(source), { x: EDGE, y: y + 2, width, size: 16, color: MUTED, lines: 2 });
};

const placesIn = (order) => order.map((_, document) => order.indexOf(document));

/* Return the model and the source of the answers, and the base rate where it is shown. */
const sourceText = ({ state }) => {
  const rate = document.querySelector("#order-table [data-base-rate]:not([hidden])")?.textContent ?? "";
  const model = document.querySelector("#model-status")?.textContent.trim();
  return [state.source || `Model: ${model}.`, rate].join(" ").trim();
};

/* Return the picture of the answers in all orders, as a blob. */
export const picture = (qr) => {
  const table = currentTable();
  const canvas = newCanvas();
  const places = placesIn(table.state.orders[table.sequence[0]]);
  draw(canvas.getContext("2d"), table, { qr, places, source: sourceText(table) });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
};

/* Return why there is nothing to draw, or "". */
const problem = () => {
  if (document.querySelector("#answers-stale .page-stale")) return "Results are out of date. Run the orders first.";
  return currentTable().state.orders.length ? "" : "No results yet. Run the orders first.";
};

export const card = async ({ qr }) => {
  if (problem()) return problem();
  saveFile(await picture(fitting(qr)), "pine-explorer.png");
  return withReason("Picture saved.", qr);
};

/* Record the canvas while one order follows another, and return what happened. */
export const video = async ({ qr: rows, status }) => {
  const type = TYPES.find((one) => window.MediaRecorder?.isTypeSupported(one));
  const [canvas, qr] = [newCanvas(), fitting(rows)];
  if (problem()) return problem();
  if (!type || !canvas.captureStream) return NO_RECORDER;
  const table = structuredClone(currentTable());
  const { state, sequence } = table;
  const context = canvas.getContext("2d");
  const source = sourceText(table);
  const step = Math.max(2 * MOVE_MS, Math.min(STEP_MS, MAX_VIDEO_MS / sequence.length));
  let before = placesIn(state.orders[sequence[0]]);
  draw(context, table, { qr, order: sequence[0], places: before, source });
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES_PER_S), { mimeType: type, videoBitsPerSecond: 4e6 });
  const chunks = [];
  recorder.addEventListener("dataavailable", ({ data }) => chunks.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  for (const [number, order] of sequence.entries()) {
    status(`Recording order ${number + 1} of ${sequence.length}…`);
    const after = placesIn(state.orders[order]);
    const began = performance.now();
    for (let passed = 0; passed < step; passed = performance.now() - began) {
      const share = Math.min(1, passed / MOVE_MS);
      const places = after.map((slot, document) => before[document] + (slot - before[document]) * share);
      draw(context, table, { qr, order, places, source });
      await new Promise((resolve) => setTimeout(resolve, 1000 / FRAMES_PER_S));
    }
    before = after;
  }
  recorder.stop();
  await ended;
  saveFile(new Blob(chunks, { type }), `pine-explorer.${type.match(/\w+\/(\w+)/)[1]}`);
  return withReason("Video saved.", rows);
};
