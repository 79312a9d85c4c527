/* gradio looks at a widget by copying all its properties, each word and each number with structuredClone, thousands of
   times at every event of a page with many widgets (gradio issue 12831). What cannot change is its own copy, and a
   function has none. */
(() => {
  "use strict";
  const clone = window.structuredClone;
  const refusal = new DOMException("A function could not be cloned.", "DataCloneError");
  window.structuredClone = (value, options) => {
    if (typeof value === "function") throw refusal;
    if (value === null || !["object", "symbol"].includes(typeof value)) return value;
    return clone(value, options);
  };
})();
