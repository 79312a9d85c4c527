/* Elements, words and files, for all scripts. */

/* Return a new element. Properties with a hyphen, and the role, are attributes. */
export const h = (name, { style = {}, dataset = {}, ...properties } = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "role" || key.includes("-")) element.setAttribute(key, value);
    else element[key] = value;
  }
  Object.assign(element.style, style);
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
};

/* Return a new element of SVG. */
export const svg = (name, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const MOVE = { duration: 500, easing: "cubic-bezier(.4, 0, .2, 1)" };

export const boxesOf = (nodes) => new Map([...nodes].map((node) => [node, node.getBoundingClientRect()]));

/* Animate nodes from their previous boxes to where they are. */
export const glide = (before, timing = MOVE) => {
  if (isStill()) return;
  for (const [node, from] of before) {
    const to = node.getBoundingClientRect();
    if (!to.width || (from.left === to.left && from.top === to.top)) continue;
    node.animate([{ translate: `${from.left - to.left}px ${from.top - to.top}px` }, { translate: "none" }], timing);
  }
};

/* Return the closest element around the target of an event, which may be the document. */
export const closest = (node, selector) => (node instanceof Element ? node.closest(selector) : null);

export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const isSame = (left, right) => left.length === right.length && left.every((one, place) => one === right[place]);

const RTL = /^\P{L}*(?=\p{L})[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

/* Return the direction of a text: that of its first letter, as dir="auto" does. */
export const directionOf = (text) => (RTL.test(text) ? "rtl" : "ltr");

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export const percent = (share) => `${Math.round(100 * share)} %`;

export const textBlob = (text, type) => new Blob([text], { type: `${type};charset=utf-8` });

/* Return an HTML document. body: HTML. */
export const documentHtml = ({ title, styles, body, className = "" }) =>
  `<!doctype html>\n<html lang="${document.documentElement.lang}"><head><meta charset="utf-8">` +
  `<meta name="viewport" content="width=device-width, initial-scale=1">${h("title", { textContent: title }).outerHTML}` +
  `<style>${styles}</style></head><body class="${className}">${body}</body></html>\n`;

/* Let the browser save a blob as a file. */
export const saveFile = (blob, download) => {
  const href = URL.createObjectURL(blob);
  h("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
};
