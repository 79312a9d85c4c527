/* Keys that work everywhere on the page; viz/page/keys.py lists them. */
(() => {
  "use strict";
  const STOPS = ".page-job-stop:not(:disabled)";

  const press = (button) => {
    if (!button || button.disabled) return;
    button.scrollIntoView({ block: "nearest" });
    button.click();
  };

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.repeat) return;
    if (event.key === "Enter") {
      event.preventDefault();
      press(document.getElementById(event.shiftKey ? "shuffle" : "run"));
    } else if (event.key === ".") {
      event.preventDefault();
      document.querySelectorAll(STOPS).forEach(press);
    }
  });
})();
