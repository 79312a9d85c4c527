/* Keyboard shortcuts of the whole page, listed in viz/cards/tutorial.toml, and buttons that click others. */
import { closest } from "../viz/drawing/common.js";
import { select } from "../viz/drawing/pictures.js";
import { found, open } from "./tabs.js";

const STOPS = ".page-job-stop:not(:disabled)";
const TEXT_FIELDS = "textarea, input:not([type=checkbox], [type=radio], [type=range], [role=combobox])";
// By the character of the key, or else by its position: on a Mac, Alt changes the character.
const STEPS = { ".": 1, ",": -1, Period: 1, Comma: -1 };

const press = (button) => {
  if (!button || button.disabled) return;
  button.scrollIntoView({ block: "nearest" });
  button.click();
};

const shuffle = async () => {
  await open("See it");
  press(await found(() => document.getElementById("start-all")));
};

/* Turn the steps of the focused tutorial, or else the query of the figures. */
const turn = (by) => {
  const tutorial = document.activeElement.closest(".pine-tutorial");
  if (tutorial) return press(tutorial.querySelector(`[data-turn="${by}"]`));
  document.getElementById("query")?.scrollIntoView({ block: "nearest" });
  select({ turn: by });
};

// Buttons of empty states click the button that creates the content.
document.addEventListener("click", (event) => {
  const button = closest(event.target, "[data-click-target]");
  if (button) press(document.getElementById(button.dataset.clickTarget));
  if (closest(event.target, "[href='#request-form']")) open("See it");
});

document.addEventListener("keydown", (event) => {
  const by = STEPS[event.key] ?? STEPS[event.code];
  if (!by || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.target instanceof Element && event.target.matches(TEXT_FIELDS)) return;
  event.preventDefault();
  turn(by);
});

// Else Tab moves the focus to the list of a dropdown, which scrolls, and which gradio then removes.
document.addEventListener("keydown", ({ key, target }) => {
  const isOpen = target instanceof Element && target.ariaExpanded === "true";
  if (key === "Tab" && isOpen) document.getElementById(target.getAttribute("aria-controls"))?.setAttribute("tabindex", -1);
});

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.repeat) return;
  if (event.key === "Enter") {
    event.preventDefault();
    if (event.shiftKey) shuffle();
    else press(document.getElementById("start-one"));
  } else if (event.key === ".") {
    event.preventDefault();
    document.querySelectorAll(STOPS).forEach(press);
  }
});
