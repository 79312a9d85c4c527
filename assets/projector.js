/* Presentation: guess, table, and the steps of Why, one on the screen at a time, in large type. Arrow keys step, Space
   plays what is shown, Escape exits. A button with data-projector turns it on and off; each step is the live tab. */
(() => {
  "use strict";
  const STEPS = ["Guess", "See it", "Mask", "Importance", "Positions"];
  const WHY = 2; // first step of Why
  const TIMEOUT_MS = 3000;
  const FITTING = { width: 1067, height: 600 }; // window in CSS pixels that the first step fits into

  let shown = 0;
  let opening = Promise.resolve(); // tabs are opened one after the other
  let wasDark = false;

  const isOn = () => document.body.classList.contains("pine-projector");

  const bar = () => {
    let made = document.getElementById("projector-bar");
    if (!made) {
      made = document.createElement("nav");
      made.id = "projector-bar";
      made.setAttribute("aria-label", "Presentation mode");
      made.tabIndex = -1; // has the focus at first, so that Space plays
      made.innerHTML =
        '<button type="button" data-step="-1" aria-label="Previous step">‹</button><span aria-live="polite"></span>' +
        '<button type="button" data-step="1" aria-label="Next step">›</button>' +
        '<button type="button" data-projector>Exit</button>';
      document.body.append(made);
    }
    return made;
  };

  const found = async (find) => {
    for (const until = Date.now() + TIMEOUT_MS; Date.now() < until; ) {
      const node = find();
      if (node) return node;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return null;
  };

  /* Open nested tabs one after the other, because the content of a tab is created after it is opened. */
  const open = async (...labels) => {
    for (const label of labels) {
      // The id of a tab is its label as written here; a translator replaces the text of the tab only.
      const tabs = () => [...document.querySelectorAll(`#tabs [role=tab][data-tab-id="${label}"]`)];
      const tab = await found(() => tabs().find((each) => each.checkVisibility()));
      if (tab?.getAttribute("aria-selected") === "false") tab.click();
      await found(() => !tab || tab.getAttribute("aria-selected") === "true");
    }
  };

  const show = (index) => {
    const place = (shown = (index + STEPS.length) % STEPS.length);
    const name = STEPS[place];
    opening = opening.then(async () => {
      if (place !== shown) return;
      await open(place < WHY ? "See it" : "Why");
      const why = place < WHY ? null : await found(() => document.querySelector(".page-why:not([hidden])"));
      if (why) window.pineTutorial.show(why, place - WHY);
    });
    if (name !== "Guess") window.pineGuess.hide();
    else if (!window.pineGuess.ask()) return show(1); // no answers in two orders
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
    if (!on) window.pineGuess.hide();
    // The focused button is hidden with the header, or with the bar.
    (on ? bar() : document.querySelector(".page-header-button[data-projector]")).focus();
    if (on) show(0);
  };

  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("[data-projector]")) turn(!isOn());
    const step = event.target.closest("#projector-bar [data-step]");
    if (step) show(shown + Number(step.dataset.step));
    if (isOn() && event.target.closest(".page-guess :is([name=skip], [name=go-on])")) {
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

  window.pineTabs = { open, found };
})();
