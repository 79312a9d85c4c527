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

/* Return the closest element around the target of an event, which may be the document. */
export const closest = (node, selector) => (node instanceof Element ? node.closest(selector) : null);

export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const isSame = (left, right) => left.length === right.length && left.every((one, place) => one === right[place]);

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export const percent = (share) => `${Math.round(100 * share)} %`;

/* Let the browser save a blob as a file. */
export const saveFile = (blob, download) => {
  const href = URL.createObjectURL(blob);
  h("a", { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
};
