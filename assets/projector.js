/* Presentation: guess, table, the steps of Why and the last slide, one on the screen at a time, in large type. Space, an
   arrow or a clicker first reveals what a slide hides, and then goes on. B blanks the screen, 1 to 6 switch documents
   off, Escape exits. A button with data-projector turns it on and off; each slide is the live tab. */
import { closest, h } from "../viz/drawing/common.js";
import * as guess from "./guess.js";
import * as last from "./last_slide.js";
import { found, open } from "./tabs.js";
import { show as showStep } from "./tutorial.js";

const SLIDES = ["Guess", "See it", "Mask", "Importance", "Positions", "Your turn"];
const ENDS = ["Guess", "Your turn"]; // slides without documents that can be switched off
const WHY = 2; // first step of Why
const STEPS = { " ": 1, ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }; // PageDown and PageUp: a clicker
const BLANK = ["b", "B", "."]; // the point is sent by clickers
const FITTING = { width: 1067, height: 600 }; // window in CSS pixels that a slide fits into

let shown = 0;
let opening = Promise.resolve(); // tabs are opened one after the other
let isPlaying = false; // the orders of the table
let isPlayed = false; // on this slide
let wasDark = false;

const isOn = () => document.body.classList.contains("pine-projector");
const isWhy = () => shown >= WHY && shown < SLIDES.length - 1;
const why = () => document.querySelector(".page-why:not([hidden])");

const bar = () => {
  let made = document.getElementById("projector-bar");
  if (!made) {
    // It has the focus at first, so that Space reveals.
    made = h("nav", { id: "projector-bar", "aria-label": "Presentation mode", tabIndex: -1 });
    made.innerHTML =
      '<button type="button" data-step="-1" aria-label="Previous step">‹</button><span aria-live="polite"></span>' +
      '<button type="button" data-step="1" aria-label="Next step">›</button>' +
      '<button type="button" data-projector>Exit</button>';
    document.body.append(made);
  }
  return made;
};

const togglePlaying = () => document.dispatchEvent(new CustomEvent("pine:play"));

document.addEventListener("pine:playing", ({ detail }) => {
  isPlaying = detail;
  isPlayed ||= detail;
});

/* Reveal what a step of Why hides; return false if it hides nothing. */
const revealStep = () => Boolean(why()) && !why().dispatchEvent(new CustomEvent("pine:reveal", { cancelable: true }));

/* Reveal what the slide hides; return false if it hides nothing. */
const reveal = () => {
  if (SLIDES[shown] === "Guess") return guess.reveal();
  if (isWhy()) return revealStep();
  if (SLIDES[shown] !== "See it" || isPlayed) return false;
  togglePlaying();
  return isPlayed; // false if there are no two orders
};

const leave = () => {
  guess.hide();
  last.hide();
  if (isPlaying) togglePlaying();
  if (isWhy()) revealStep();
};

const show = (index) => {
  leave();
  const place = (shown = index);
  isPlayed = false;
  opening = opening.then(async () => {
    if (place !== shown || !isOn()) return;
    await open(isWhy() ? "Why" : "See it");
    if (!isWhy()) return;
    const steps = await found(why);
    if (!steps) return;
    showStep(steps, place - WHY);
    steps.dispatchEvent(new CustomEvent("pine:hold"));
  });
  if (SLIDES[place] === "Guess" && !guess.ask()) return show(1); // no answers in two orders
  if (SLIDES[place] === "Your turn") last.show();
  bar().querySelector("span").textContent = `${shown + 1} of ${SLIDES.length}: ${SLIDES[shown]}`;
  window.scrollTo(0, 0);
};

const step = (by) => {
  if (by > 0 && reveal()) return;
  if (shown + by in SLIDES) show(shown + by);
};

const fill = () => {
  const zoom = Math.min(window.innerHeight / FITTING.height, window.innerWidth / FITTING.width);
  document.body.style.setProperty("--page-zoom", Math.max(zoom, 1.1));
};

const turn = (on) => {
  if (on) wasDark = document.body.classList.contains("dark");
  fill();
  document.body.classList.toggle("pine-projector", on);
  document.body.classList.toggle("dark", !on && wasDark);
  document.body.classList.remove("pine-blank");
  bar().hidden = !on;
  if (!on) leave();
  // The focused button is hidden with the header, or with the bar.
  (on ? bar() : document.querySelector(".page-header-button[data-projector]")).focus();
  if (on) show(0);
};

/* Press the eye of the card of a document. */
const pressEye = (letter) => {
  const cards = [...document.querySelectorAll("#documents .page-card")];
  const card = cards.find((one) => one.querySelector(".page-badge").dataset.letter === String(letter));
  card?.querySelector(".page-eye:not([hidden])")?.click();
};

window.addEventListener("resize", () => isOn() && fill());

document.addEventListener("click", (event) => {
  if (closest(event.target, "[data-projector]")) turn(!isOn());
  const button = closest(event.target, "#projector-bar [data-step]");
  if (button) step(Number(button.dataset.step));
  const isEnd = isOn() && closest(event.target, ".page-guess :is([name=skip], [name=go-on])");
  if (isEnd) show(1);
  // Not on a button that is hidden, or that Space would press again.
  if (isOn() && (closest(event.target, ".page-guess button") || (button && event.detail))) bar().focus();
});

/* Check that the focused element uses a key itself. */
const isUsed = (target, key) => {
  if (closest(target, "textarea, select, [role=listbox], [role=tab], .pine-figure, input:not([type=number])")) return true;
  if (closest(target, "input")) return !key.startsWith("Page");
  return [" ", "Enter"].includes(key) && Boolean(closest(target, "button, a"));
};

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (!isOn() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const isBlank = document.body.classList.contains("pine-blank");
  if (key === "Escape") return turn(false);
  if (key === "Enter" && closest(target, ".page-guess input")) bar().focus();
  if (isUsed(target, key)) return;
  const isStep = key in STEPS;
  if (BLANK.includes(key) || (isBlank && isStep)) document.body.classList.toggle("pine-blank");
  else if (isStep) step(STEPS[key]);
  else if (/^[1-6]$/.test(key) && !ENDS.includes(SLIDES[shown]) && !isBlank) pressEye(Number(key) - 1);
  else return;
  event.preventDefault();
});
