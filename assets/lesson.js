/* The lesson in the browser: one step at a time, guesses before results, words that show what they say in the
   picture. No server, no network.

   Delegated from the document, so that the lesson needs no wiring wherever and whenever it arrives. The class
   pine-scripted on the root tells the styles that a script is there; without it everything is shown. */
(() => {
  "use strict";
  if (window.pineLesson) return;
  document.documentElement.classList.add("pine-scripted");

  const closest = (node, selector) => (node instanceof Element ? node.closest(selector) : null);

  // Steps -----------------------------------------------------------------------------------------

  const place = (lesson) => {
    const steps = [...lesson.querySelectorAll(".pine-lesson-step")];
    return [steps, steps.findIndex((step) => step.classList.contains("pine-current"))];
  };

  const show = (lesson, wanted) => {
    const [steps, now] = place(lesson);
    const index = Math.min(Math.max(wanted, 0), steps.length - 1);
    if (index === now) return;
    steps.forEach((step, at) => step.classList.toggle("pine-current", at === index));
    lesson.querySelectorAll("[data-step]").forEach((dot, at) => {
      if (at === index) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    // A disabled button would lose the focus, and with it the arrow keys.
    const [back, next] = lesson.querySelectorAll("[data-turn]");
    const had = document.activeElement;
    [back.disabled, next.disabled] = [index === 0, index === steps.length - 1];
    if (had.disabled) (had === back ? next : back).focus();
    const heading = steps[index].querySelector(".pine-lesson-heading").textContent;
    lesson.querySelector("[data-said]").textContent = `Step ${index + 1} of ${steps.length}: ${heading}`;
    if (lesson.getBoundingClientRect().top < 0) lesson.scrollIntoView();
  };

  const turn = (lesson, by) => show(lesson, place(lesson)[1] + by);

  document.addEventListener("keydown", (event) => {
    // On a page that is the lesson alone, nothing has to be chosen first.
    const isAlone = event.target === document.body && !document.getElementById("tabs");
    const lesson = isAlone ? document.querySelector(".pine-lesson") : closest(event.target, ".pine-lesson");
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!lesson || !by || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    // In a picture the arrows walk over its cells or scroll it.
    if (closest(event.target, ".pine-drawing, .pine-scroll")) return;
    event.preventDefault();
    turn(lesson, by);
  });

  // Quiz ------------------------------------------------------------------------------------------

  const guess = (button) => {
    for (const other of button.parentElement.querySelectorAll("[data-guess]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
  };

  const reveal = (quiz) => {
    const entries = [...quiz.querySelectorAll("[data-truth]")];
    const guesses = entries.map((entry) => entry.querySelector("[aria-pressed=true]")?.dataset.guess);
    const left = guesses.filter((one) => !one).length;
    const score = quiz.querySelector(".pine-quiz-score");
    if (left) {
      score.textContent = left === 1 ? "Guess first: one is left." : `Guess first: ${left} are left.`;
      return;
    }
    const right = entries.map((entry, index) => entry.dataset.truth === guesses[index]);
    entries.forEach((entry, index) => {
      entry.dataset.right = String(right[index]);
      for (const button of entry.querySelectorAll("[data-guess]")) button.disabled = true;
    });
    quiz.classList.add("pine-revealed");
    quiz.querySelector("[data-reveal]").hidden = true;
    score.textContent = `You guessed ${right.filter(Boolean).length} of ${entries.length}.`;
    score.focus(); // with the button the focus would go, and with it the arrow keys
  };

  // Words and pictures ----------------------------------------------------------------------------

  // Words of class pine-pointer show in the pictures of their part what they say, while they are pointed at, have
  // the focus or are pressed; what is pointed at in a picture shows the words that speak of it.
  const PART = ".pine-lesson-part";
  const SHOWN = "pine-shown";

  const showSpots = (part, pointed) => {
    const words = [...part.querySelectorAll(".pine-pointer")];
    const isOf = (one) => one.ariaPressed === "true" || one.matches(":focus-visible");
    const own = closest(pointed, ".pine-pointer");
    const wanted = own ? [own] : words.filter(isOf);
    const spots = new Set(wanted.flatMap((one) => [...part.querySelectorAll(one.dataset.shows)]));
    for (const one of part.querySelectorAll(`.${SHOWN}`)) one.classList.remove(SHOWN);
    for (const one of spots) one.classList.add(SHOWN);
    for (const picture of part.querySelectorAll(".pine-picture")) {
      picture.classList.toggle("pine-showing", Boolean(picture.querySelector(`.${SHOWN}`)));
    }
    const inPicture = !own && pointed instanceof Element && pointed;
    for (const one of words) {
      if (wanted.includes(one) || (inPicture && inPicture.closest(one.dataset.shows))) one.classList.add(SHOWN);
    }
  };

  const follow = (event) => {
    const part = closest(event.target, PART);
    if (part) showSpots(part, event.type === "mouseout" ? null : event.target);
  };
  for (const kind of ["mouseover", "mouseout", "focusin", "focusout"]) document.addEventListener(kind, follow);

  // One at a time stays, so that a finger sees it too.
  const press = (words) => {
    const part = words.closest(PART);
    const stays = words.ariaPressed !== "true";
    for (const one of part.querySelectorAll(".pine-pointer")) one.ariaPressed = String(stays && one === words);
    showSpots(part, words);
  };

  // The live pictures -----------------------------------------------------------------------------

  const HIGHLIGHT_MS = 3000;

  const showLive = (link) => {
    window.pineTabs?.open("Look inside", link.dataset.liveLabel);
    const picture = document.getElementById("tabs");
    if (!picture) return;
    picture.classList.add("pine-lesson-live");
    setTimeout(() => picture.classList.remove("pine-lesson-live"), HIGHLIGHT_MS);
  };

  document.addEventListener("click", (event) => {
    const button = closest(event.target, ".pine-lesson button, .pine-lesson a");
    if (!button) return;
    const { turn: by, step, guess: guessed, reveal: revealed, live, shows } = button.dataset;
    const lesson = button.closest(".pine-lesson");
    if (by) turn(lesson, Number(by));
    else if (step) show(lesson, Number(step));
    else if (guessed) guess(button);
    else if (revealed !== undefined) reveal(button.closest(".pine-quiz"));
    else if (live) showLive(button);
    else if (shows) press(button);
  });

  window.pineLesson = { show };
})();
