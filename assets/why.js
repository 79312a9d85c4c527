/* Tab "Why": a document that is hovered, focused or pressed is highlighted in the answers and the figures, and the
   figure of the other method fades in. assets/tutorial.js turns the steps. */
(() => {
  "use strict";
  const FADE_MS = 400;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)");
  const chipOf = ({ target }) => (target instanceof Element ? target.closest(".page-why-documents button") : null);

  const highlight = (why, chip) => {
    const chips = [...why.querySelectorAll(".page-why-documents button")];
    const shown = chip ?? chips.find((one) => one.ariaPressed === "true" || one.matches(":focus-visible"));
    const letter = shown?.dataset.document;
    why.classList.toggle("page-why-marked", Boolean(letter));
    for (const one of why.querySelectorAll("[data-document]")) {
      one.classList.toggle("page-marked", one.dataset.document === letter);
    }
    why.querySelectorAll("pine-figure").forEach((figure) => figure.mark(letter));
  };

  const follow = (event) => {
    const chip = chipOf(event);
    if (chip) highlight(chip.closest(".page-why"), /over|focusin/.test(event.type) ? chip : null);
  };
  for (const kind of ["mouseover", "mouseout", "focusin", "focusout"]) document.addEventListener(kind, follow);

  document.addEventListener("click", (event) => {
    const chip = chipOf(event);
    if (chip) {
      const isPressed = chip.ariaPressed !== "true";
      for (const one of chip.parentElement.querySelectorAll("button")) {
        one.ariaPressed = String(isPressed && one === chip);
      }
      highlight(chip.closest(".page-why"), isPressed ? chip : null);
    }
    const shown = event.target instanceof Element && event.target.closest(".page-why [data-show]");
    if (shown && !isStill.matches) {
      const plot = shown.closest("pine-figure").querySelector(".pine-plot");
      plot?.animate([{ opacity: 0.1 }, { opacity: 1 }], { duration: FADE_MS });
    }
  });
})();
