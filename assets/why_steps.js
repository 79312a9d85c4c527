/* The steps of the tab "Why" as plain data: cells, places, texts and captions. assets/why.js draws them. record is the
   JSON of viz/page/why.py. */
import { percent } from "../viz/drawing/common.js";

const MIN_SHARE = 0.5; // of attention on one document, from which a token has its color
const MANY = 5; // documents, beside which numbers have no room for a unit
const MAX_LISTED = 4; // documents named beside a row of the mask

const visible = (token) => `“${token.trim() || "␣"}”`;
const most = (values) => values.indexOf(Math.max(...values));

/* Return the mask of the documents in an order, with the start before and the question after them: for each row its
   document, its text, and kinds of cells ("self", "seen", "added" to vanilla, or null). */
export const maskOf = (record, { method, order }) => {
  // PINE's mask is the same in every order, and so is its picture.
  const documents = method === "pine" ? record.orders[0].order : order;
  const [before, now] = [record.visible.vanilla, record.visible[method]];
  const last = documents.length + 1; // row and column of the question
  const letter = (document) => record.documents[document].letter;
  const seenBy = (row) => documents.filter((_, column) => column !== row && now[row][column]).map(letter);
  const says = (row) => {
    const seen = seenBy(row);
    if (!seen.length) return "no other";
    return seen.length > MAX_LISTED ? `${seen.length} others` : seen.join(" ");
  };
  const isOther = (row, column) => [row, column].every((index) => index > 0 && index < last) && row !== column;
  const kind = (row, column) => {
    if (row === column) return "self";
    if (!isOther(row, column)) return column < row ? "seen" : null;
    if (before[row - 1][column - 1]) return "seen";
    return now[row - 1][column - 1] ? "added" : null;
  };
  const indices = [...Array(last + 1).keys()];
  const cells = (row) => indices.map((column) => kind(row, column));
  const ends = { 0: "start", [last]: "question" };
  const rows = indices.map((row) =>
    row in ends
      ? { name: ends[row], cells: cells(row) }
      : { document: documents[row - 1], says: says(row - 1), cells: cells(row) },
  );
  const isSame = documents.every((_, row) => seenBy(row).length === documents.length - 1);
  return {
    documents,
    rows,
    label: documents.map((document, row) => `${letter(document)} attends to ${says(row)}`).join("; "),
    caption: isSame
      ? "Every document attends to every other, in any order."
      : `${letter(documents.at(-1))} attends to every document, ${letter(documents[0])} to no other: the order decides.`,
  };
};

/* Return the columns of the documents for a query: the place from the left, the share (null without scores), and the
   number above each. They slide from the order of the input into that of the query. */
export const importanceOf = (record, { answer, order, token, isSorted }) => {
  const { starts, scores, tokens } = answer;
  const isMany = order.length > MANY;
  const query = record.documents_end + record.suffix_length - 1 + token;
  const placeOf = (document) =>
    scores && !isSorted
      ? order.indexOf(document)
      : starts[token].filter((other) => other < starts[token][document]).length;
  const columns = record.documents.map(({ length }, document) => {
    const place = placeOf(document);
    if (scores) {
      const share = isSorted ? scores[token][document] : 0;
      return { place, share, number: isSorted ? percent(share) : "" };
    }
    const away = query - (starts[token][document] + length - 1);
    return { place, share: null, number: isMany ? String(away) : `${away} tokens` };
  });
  const { letter } = record.documents[most(starts[token])];
  const given = `${letter} is nearest: you gave it last.${isMany ? " Numbers: tokens to the query." : ""}`;
  const ranked = `${letter} is nearest: it has the highest score for ${visible(tokens[token])}.`;
  return { query: visible(tokens[token]), columns, caption: scores ? ranked : given };
};

/* Return the words of an answer, each with the pieces of its tokens, and the token with the most attention on one
   document, which a click selects. */
export const wordsOf = ({ tokens, shares }) => {
  const words = [];
  tokens.forEach((token, index) => {
    const text = token.trimStart();
    const blank = index ? token.slice(0, token.length - text.length) : "";
    if (!words.length || blank) words.push({ blank, pieces: [], strongest: -1 });
    const word = words.at(-1);
    const share = Math.max(...shares[index]);
    word.pieces.push({ text, token: index, document: share >= MIN_SHARE && text ? most(shares[index]) : null });
    if (share > word.strongest && text) Object.assign(word, { strongest: share, token: index });
  });
  return words;
};

/* Return the letters and numbers of a text as words between blanks. */
const spaced = (text) => ` ${(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).join(" ")} `;

/* Return whether the answer without a document has the word of a token, as a text; "" if that is not known. */
const effectOf = (answer, token, document, letter) => {
  const without = answer.without?.[document];
  const { pieces } = wordsOf(answer).find((one) => one.pieces.some((piece) => piece.token === token));
  const word = pieces.map(({ text }) => text).join("").replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");
  if (without == null || !word) return "";
  const isKept = spaced(without).includes(spaced(word));
  return isKept ? ` But the answer without ${letter} has “${word}”, too.` : ` Without ${letter}, “${word}” is gone.`;
};

/* Return the answer without a document, as a text; "" if it is not known, or if no document is left out. */
export const withoutOf = ({ documents }, { without }, document) =>
  without?.[document] == null ? "" : `Without ${documents[document].letter}: “${without[document]}”`;

/* Return the places of documents, question and query on a ruler, in percent of its length, and the share of the
   attention of the query on each document. */
export const positionsOf = (record, { method, answer, token }) => {
  const { prefix_length: first, documents_end: end, suffix_length: suffix, documents } = record;
  const scale = 100 / (end + suffix + record.num_tokens - first);
  const starts = answer.starts[token];
  const query = end + suffix - 1 + token;
  const source = most(answer.shares[token]);
  const nearest = method === "pine" ? "which PINE places nearest" : "the nearest document";
  const places = { [starts.indexOf(Math.min(...starts))]: "the farthest document", [most(starts)]: nearest };
  const share = percent(answer.shares[token][source]);
  return {
    bars: documents.map(({ length }, document) => ({
      left: scale * (starts[document] - first),
      width: scale * length,
      start: starts[document],
      share: answer.shares[token][document],
    })),
    question: {
      left: scale * (end - first),
      width: scale * suffix,
      text: scale * suffix > 8 ? record.question || "question" : "?", // no room
    },
    query: { left: scale * (query + 0.5 - first), text: `query ${query}` },
    caption:
      `${visible(answer.tokens[token])}: ${share} of the attention on ${documents[source].letter}, ` +
      `${places[source] ?? "in between"}.${effectOf(answer, token, source, documents[source].letter)}`,
  };
};
