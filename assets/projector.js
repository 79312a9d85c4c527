/* Presentation: guess, table, and the steps of Why, one on the screen at a time, in large type. Arrow keys step, Space
   plays what is shown, Escape exits. A button with data-projector turns it on and off; each step is the live tab. */
import { closest, h } from "../viz/drawing/common.js";
import * as guess from "./guess.js";
import { found, open } from "./tabs.js";
import { show as showStep } from "./tutorial.js";

const STEPS = ["Guess", "See it", "Mask", "Importance", "Positions"];
const WHY = 2; // first step of Why
const FITTING = { width: 1067, height: 600 }; // window in CSS pixels that the first step fits into

let shown = 0;
let opening = Promise.resolve(); // tabs are opened one after the other
let wasDark = false;

const isOn = () => document.body.classList.contains("pine-projector");

const bar = () => {
  let made = document.getElementById("projector-bar");
  if (!made) {
    // It has the focus at first, so that Space plays.
    made = h("nav", { id: "projector-bar", "aria-label": "Presentation mode", tabIndex: -1 });
    made.innerHTML =
      '<button type="button" data-step="-1" aria-label="Previous step">‹</button><span aria-live="polite"></span>' +
      '<button type="button" data-step="1" aria-label="Next step">›</button>' +
      '<button type="button" data-projector>Exit</button>';
    document.body.append(made);
  }
  return made;
};

const show = (index) => {
  const place = (shown = (index + STEPS.length) % STEPS.length);
  const name = STEPS[place];
  opening = opening.then(async () => {
    if (place !== shown) return;
    await open(place < WHY ? "See it" : "Why");
    const why = place < WHY ? null : await found(() => document.querySelector(".page-why:not([hidden])"));
    if (why) showStep(why, place - WHY);
  });
  if (name !== "Guess") guess.hide();
  else if (!guess.ask()) return show(1); // no answers in two orders
  bar().querySelector("span").textContent = `${shown + 1} of ${STEPS.length}: ${name}`;
  window.scrollTo(0, 0);
};

const turn = (on) => {
  if (on) wasDark = document.body.classList.contains("dark");
  const zoom = Math.min(window.innerHeight / FITTING.height, window.innerWidth / FITTING.width, 1.6);
  document.body.style.setProperty("--page-zoom", Math.max(zoom, 1.1));
  document.body.classList.toggle("pine-projector", on);
  document.body.classList.toggle("dark", !on && wasDark);
  bar().hidden = !on;
  if (!on) guess.hide();
  // The focused button is hidden with the header, or with the bar.
  (on ? bar() : document.querySelector(".page-header-button[data-projector]")).focus();
  if (on) show(0);
};

document.addEventListener("click", (event) => {
  if (closest(event.target, "[data-projector]")) turn(!isOn());
  const step = closest(event.target, "#projector-bar [data-step]");
  if (step) show(shown + Number(step.dataset.step));
  if (isOn() && closest(event.target, ".page-guess :is([name=skip], [name=go-on])")) {
    show(1);
    bar().focus(); // not on the button, which is hidden
  }
});

document.addEventListener("keydown", (event) => {
  if (!isOn() || event.defaultPrevented || !(event.target instanceof Element)) return;
  if (event.key === "Escape") return turn(false);
  // Do not handle keys that the focused element uses.
  if (event.target.closest("input, textarea, select, [role=listbox], [role=tab], .pine-figure")) return;
  if (event.key === "ArrowRight" || event.key === "PageDown") show(shown + 1);
  else if (event.key === "ArrowLeft" || event.key === "PageUp") show(shown - 1);
  else if (event.key === " " && !event.target.closest("button") && STEPS[shown] !== "Guess") {
    if (shown < WHY) document.dispatchEvent(new CustomEvent("pine:play"));
    else document.querySelector(".page-why [name=play]")?.click();
  }
  else return;
  event.preventDefault();
});
