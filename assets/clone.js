/* gradio copies all properties of a widget, each string and each number, with structuredClone: thousands of calls at
   every event of a page with many widgets (gradio issue 12831). Immutable values need no copy; functions always throw. */

const clone = window.structuredClone;
const refusal = new DOMException("A function could not be cloned.", "DataCloneError");
window.structuredClone = (value, options) => {
  if (typeof value === "function") throw refusal;
  if (value === null || !["object", "symbol"].includes(typeof value)) return value;
  return clone(value, options);
};
