/* Drafts, which the browser stores, and the session in the address of the page; viz/page/share.py opens them. */
import { translated } from "./language.js";

const PARAMETER = "session";
const DRAFT = "pine-explorer-draft";
const TYPED = ["question", "instruction", "accepted"]; // fields of texts
const ANSWER_MS = 1000; // in which gradio answers a click, if it is connected
const RUN_KEY = "pine-explorer-run-key";
const STORED = "Your draft is saved in this browser only.";
const ASK = "Open this link? It replaces your current input.";
const NOT_STORED =
  "Drafts cannot be saved in this browser (embedded frame, private window or full storage). Use “Copy link” or " +
  "“Save session”.";

/* Return the HTML of a message. */
export const caption = (text) => `<p class="page-caption" role="status">${text}</p>`;

let isUsed = false; // the user has clicked or typed
const used = (event) => (isUsed ||= event.isTrusted);
for (const kind of ["click", "input", "keydown"]) document.addEventListener(kind, used, { capture: true });

// A link that is pasted into an open tab only changes the address. Confirm before the input is replaced.
window.addEventListener("hashchange", () => {
  if (!fragment().has(PARAMETER)) return;
  if (isUsed && !confirm(translated(ASK))) return unlink();
  if (isUsed) withStorage((storage) => storage.removeItem(DRAFT));
  form = null; // which is not stored again
  location.reload();
});

let isStored = true;

/* Return the result of `work` on the local storage, "" if access is denied: then reading `localStorage` throws. */
export const withStorage = (work) => {
  try {
    isStored = true;
    return work(localStorage) ?? "";
  } catch {
    isStored = false;
    return "";
  }
};

/* Return the draft as JSON; those of earlier versions are in another format. */
const draft = () => {
  const json = withStorage((storage) => storage.getItem(DRAFT));
  return json.startsWith("{") ? json : "";
};

const draftCaption = () => caption(isStored ? STORED : NOT_STORED);

let form = null; // last values of the form, as a session
let waiting = null; // timer until the values are read from the fields

/* Changes by the animation are not a draft, and would replace the saved one before it is restored. */
const store = () => {
  if (isUsed) withStorage((storage) => storage.setItem(DRAFT, JSON.stringify(form)));
};

/* Keep the values of the form, of which a session consists. */
export const keep = (accepted, task, question, instruction, methods, max_new_tokens, documents, chat_template_kwargs) => {
  clearTimeout(waiting);
  const texts = { accepted, task, question, instruction, chat_template_kwargs: chat_template_kwargs.trim() };
  form = { ...texts, methods, max_new_tokens, documents: JSON.parse(documents) };
  store();
  return [draftCaption()];
};

/* Keep typed texts without a connection, where gradio sends no events, and those of a page that is left. */
const keepTyped = () => {
  const valueOf = (selector, within = document) => within.querySelector(selector)?.value;
  const cards = [...document.querySelectorAll("#documents ol > .page-card")];
  const typed = {
    ...Object.fromEntries(TYPED.map((name) => [name, valueOf(`#${name} :is(textarea, input)`) ?? form[name]])),
    documents: cards.map((card) => ({
      letter: Number(card.querySelector(".page-badge").dataset.letter),
      title: valueOf(".page-title", card),
      text: valueOf(".page-text", card),
    })),
  };
  const length = Number(valueOf("#length input[type=number]")) || form.max_new_tokens;
  form = { ...form, ...typed, max_new_tokens: length };
  store();
};
window.addEventListener("pagehide", () => form && keepTyped());

document.addEventListener("click", ({ target }) => {
  if (target.id === "keep-draft" && form) waiting = setTimeout(keepTyped, ANSWER_MS);
});

/* Return the secret key by which a reload of this tab finds its run; "" without storage. */
const runKey = () => {
  const digits = (byte) => byte.toString(16).padStart(2, "0");
  try {
    const key = sessionStorage.getItem(RUN_KEY) ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), digits).join("");
    sessionStorage.setItem(RUN_KEY, key);
    return key;
  } catch {
    return "";
  }
};

const fragment = () => new URLSearchParams(location.hash.slice(1));

/* Return the code in the address: after #, which is not sent to servers, or in the query of older links. */
const linked = () => fragment().get(PARAMETER) ?? new URLSearchParams(location.search).get(PARAMETER) ?? "";

const unlink = () => {
  const address = new URL(location.href);
  if (address.searchParams.has(PARAMETER)) address.searchParams.delete(PARAMETER);
  if (fragment().has(PARAMETER)) address.hash = "";
  history.replaceState(history.state, "", address);
};

/* Check that a draft has a text that is not among those of the page. */
export const hasOwnText = (json, texts) => {
  const { question = "", documents = [] } = JSON.parse(json || "{}");
  return [question, ...documents.map(({ text }) => text)].some((text) => text.trim() && !texts.includes(text));
};

/* Return the inputs of the load event: link, draft, key of the run and view. */
export const begin = (_linked, _draft, _key, view) => {
  const texts = [...document.querySelectorAll("#question textarea, #documents .page-text")].map(({ value }) => value);
  if (linked() && hasOwnText(draft(), texts) && !confirm(translated(ASK))) unlink();
  return [linked(), draft(), runKey(), view];
};

/* Remove the link of an opened session from the address, so that a reload restores the current draft. */
export const opened = (resumes) => {
  unlink();
  // After gradio has applied the values of the session.
  setTimeout(() => document.getElementById("keep-draft").click(), 2 * ANSWER_MS);
  if (resumes) document.getElementById("resume-run").click();
  return [draftCaption()];
};

/* Check that the page opens with the host's example: without a link and without a draft. */
export const isFresh = () => !linked() && !draft();
