/* The tutorial: one step at a time, guesses before results, words that highlight marks of a figure.

   Events are delegated from the document, so that a tutorial that is added later needs no setup. Without the class
   pine-scripted of the root element, which is set here, the styles show all texts. */
import { closest } from "../viz/drawing/common.js";
import { open } from "./tabs.js";

document.documentElement.classList.add("pine-scripted");

const HIGHLIGHT_MS = 3000;
const SWIPE_PX = 50;
const USING_MOTION = ".pine-plot, .pine-scroll, input, textarea, select"; // what uses arrow keys and swipes itself

// Steps

const current = (tutorial) => {
  const steps = [...tutorial.querySelectorAll(".pine-tutorial-step")];
  return [steps, steps.findIndex((step) => step.classList.contains("pine-current"))];
};

export const show = (tutorial, wanted) => {
  const [steps, before] = current(tutorial);
  const index = Math.min(Math.max(wanted, 0), steps.length - 1);
  if (index === before) return;
  steps.forEach((step, at) => step.classList.toggle("pine-current", at === index));
  tutorial.querySelectorAll("[data-step]").forEach((dot, at) => {
    if (at === index) dot.setAttribute("aria-current", "step");
    else dot.removeAttribute("aria-current");
  });
  // A disabled button would lose the focus, and with it the arrow keys.
  const [back, next] = tutorial.querySelectorAll("[data-turn]");
  const focused = document.activeElement;
  [back.disabled, next.disabled] = [index === 0, index === steps.length - 1];
  if (focused.disabled) (focused === back ? next : back).focus();
  const heading = steps[index].querySelector(".pine-tutorial-heading").textContent;
  tutorial.querySelector("[data-status]").textContent = `Step ${index + 1} of ${steps.length}: ${heading}`;
  if (tutorial.getBoundingClientRect().top < 0) tutorial.scrollIntoView();
  tutorial.dispatchEvent(new CustomEvent("pine:step"));
};

const turn = (tutorial, by) => show(tutorial, current(tutorial)[1] + by);

/* Return the tutorial of the arrow keys: the focused one, or that of a saved file. assets/projector.js turns the steps
   of a presentation. */
const turnedBy = (target) => {
  if (document.body.classList.contains("pine-projector")) return null;
  const isAlone = !document.getElementById("tabs");
  return closest(target, ".pine-tutorial") ?? (isAlone ? document.querySelector(".pine-tutorial") : null);
};

document.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  const tutorial = turnedBy(event.target);
  // In a figure, a table or a field the arrows move the cursor.
  if (!tutorial || closest(event.target, USING_MOTION)) return;
  turn(tutorial, by);
  event.preventDefault();
});

let touched = null; // where a swipe began
document.addEventListener("touchstart", ({ touches, target }) => {
  const isSwipe = touches.length === 1 && closest(target, ".pine-tutorial") && !closest(target, USING_MOTION);
  touched = isSwipe ? touches[0] : null;
});
document.addEventListener("touchend", ({ changedTouches: [end] }) => {
  if (!touched) return;
  const [x, y] = [end.clientX - touched.clientX, end.clientY - touched.clientY];
  const isSideways = Math.abs(x) > SWIPE_PX && Math.abs(x) > 2 * Math.abs(y);
  if (isSideways) turn(closest(touched.target, ".pine-tutorial"), x < 0 ? 1 : -1);
});

// Guesses

const guess = (button) => {
  for (const other of button.parentElement.querySelectorAll("[data-guess]")) {
    other.ariaPressed = String(other === button);
  }
};

const reveal = (quiz) => {
  const entries = [...quiz.querySelectorAll("[data-truth]")];
  const guesses = entries.map((entry) => entry.querySelector("[aria-pressed=true]")?.dataset.guess);
  const left = guesses.filter((one) => !one).length;
  const score = quiz.querySelector(".pine-quiz-score");
  if (left) {
    score.textContent = `${left} ${left === 1 ? "guess" : "guesses"} left.`;
    return;
  }
  const isCorrect = entries.map((entry, index) => entry.dataset.truth === guesses[index]);
  entries.forEach((entry, index) => {
    entry.dataset.correct = String(isCorrect[index]);
    for (const button of entry.querySelectorAll("[data-guess]")) button.disabled = true;
  });
  quiz.classList.add("pine-revealed");
  quiz.querySelector("[data-reveal]").hidden = true;
  score.textContent = `${isCorrect.filter(Boolean).length} of ${entries.length} guesses correct.`;
  score.focus(); // the hidden button would lose the focus, and with it the arrow keys
};

// Words that highlight a mark of the figure of their step when hovered, focused or, for touch, pressed

const highlight = (step, pointed) => {
  const all = [...step.querySelectorAll(".pine-pointer")];
  const shown = pointed ?? all.find((one) => one.ariaPressed === "true" || one.matches(":focus-visible"));
  for (const one of all) one.classList.toggle("pine-shown", one === shown);
  step.querySelector("pine-figure")?.mark(shown?.dataset.mark);
};

const follow = (event) => {
  const words = closest(event.target, ".pine-pointer");
  if (!words) return;
  highlight(words.closest(".pine-tutorial-step"), /mouseover|focusin/.test(event.type) ? words : null);
};
for (const kind of ["mouseover", "mouseout", "focusin", "focusout"]) document.addEventListener(kind, follow);

const press = (words) => {
  const step = words.closest(".pine-tutorial-step");
  const isPressed = words.ariaPressed !== "true";
  for (const one of step.querySelectorAll(".pine-pointer")) one.ariaPressed = String(isPressed && one === words);
  highlight(step, words);
};

const showLive = (link) => {
  const tabs = document.getElementById("tabs");
  if (!tabs) return; // a saved file
  open("Lab", "Internals", link.dataset.live);
  tabs.classList.add("pine-tutorial-live");
  setTimeout(() => tabs.classList.remove("pine-tutorial-live"), HIGHLIGHT_MS);
};

document.addEventListener("click", (event) => {
  const button = closest(event.target, ".pine-tutorial button, .pine-tutorial a");
  if (!button) return;
  const { turn: by, step, guess: choice, reveal: isReveal, live, mark } = button.dataset;
  const tutorial = button.closest(".pine-tutorial");
  if (by) turn(tutorial, Number(by));
  else if (step) show(tutorial, Number(step));
  else if (choice) guess(button);
  else if (isReveal !== undefined) reveal(button.closest(".pine-quiz"));
  else if (live) showLive(button);
  else if (mark) press(button);
});
