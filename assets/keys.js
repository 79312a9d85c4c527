/* Keys that work everywhere on the page, which viz/cards/tutorial.toml lists, and buttons that press others. */
(() => {
  "use strict";
  const STOPS = ".page-job-stop:not(:disabled)";
  const TYPED_IN = "textarea, input:not([type=checkbox], [type=radio], [type=range], [role=combobox])";
  // By what is on the key, or else by where it is: on a Mac, Alt writes another sign.
  const STEPS = { ".": 1, ",": -1, Period: 1, Comma: -1 };

  const press = (button) => {
    if (!button || button.disabled) return;
    button.scrollIntoView({ block: "nearest" });
    button.click();
  };

  const shuffle = async () => {
    await window.pineTabs.open("See it");
    press(await window.pineTabs.found(() => document.getElementById("shuffle")));
  };

  /* The step of the tutorial that has the focus, or else the query of the pictures. */
  const turn = (by) => {
    const tutorial = document.activeElement.closest(".pine-tutorial");
    if (tutorial) return press(tutorial.querySelector(`[data-turn="${by}"]`));
    document.getElementById("query")?.scrollIntoView({ block: "nearest" });
    window.pineSelect?.({ turn: by });
  };

  // Where there is nothing yet, a button presses the one that brings it.
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-click-target]") : null;
    if (button) press(document.getElementById(button.dataset.clickTarget));
    if (event.target instanceof Element && event.target.closest("[href='#request-form']")) window.pineTabs.open("See it");
  });

  document.addEventListener("keydown", (event) => {
    const by = STEPS[event.key] ?? STEPS[event.code];
    if (!by || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target instanceof Element && event.target.matches(TYPED_IN)) return;
    event.preventDefault();
    turn(by);
  });

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.repeat) return;
    if (event.key === "Enter") {
      event.preventDefault();
      if (event.shiftKey) shuffle();
      else press(document.getElementById("run"));
    } else if (event.key === ".") {
      event.preventDefault();
      document.querySelectorAll(STOPS).forEach(press);
    }
  });
})();
