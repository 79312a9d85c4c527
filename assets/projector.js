/* Projector mode: one panel at a time in large type, arrow keys step, nothing else on the screen.

   A button with data-projector turns it on and off. Panels are the sections below, a tab each where a section has
   tabs; the tabs are those of the page itself, so that what is shown is always live. */
(() => {
  "use strict";
  const SECTIONS = ["#workspace", "#orders-section", "#inside-section", "#learn-section"];

  let panels = [];
  let shown = 0;
  let wasDark = false;

  const isOn = () => document.body.classList.contains("pine-projector");

  const listPanels = () =>
    SECTIONS.flatMap((selector) => {
      const section = document.querySelector(selector);
      if (!section) return [];
      const labels = [...section.querySelectorAll("[role=tab]")]
        .filter((tab) => tab.closest(SECTIONS.join(",")) === section && tab.offsetParent !== null)
        .map((tab) => tab.textContent.trim());
      const names = [...new Set(labels)];
      return names.length ? names.map((label) => ({ selector, label })) : [{ selector, label: "" }];
    });

  const bar = () => {
    let made = document.getElementById("projector-bar");
    if (!made) {
      made = document.createElement("nav");
      made.id = "projector-bar";
      made.setAttribute("aria-label", "Projector mode");
      made.innerHTML =
        '<button type="button" data-step="-1" aria-label="Previous panel">‹</button><span aria-live="polite"></span>' +
        '<button type="button" data-step="1" aria-label="Next panel">›</button>' +
        '<button type="button" data-projector>Leave</button>';
      document.body.append(made);
    }
    return made;
  };

  const show = (index) => {
    shown = (index + panels.length) % panels.length;
    const { selector, label } = panels[shown];
    for (const other of SECTIONS) document.querySelector(other)?.classList.toggle("page-shown", other === selector);
    const section = document.querySelector(selector);
    const tab = [...section.querySelectorAll("[role=tab]")].find((each) => each.textContent.trim() === label);
    if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
    bar().querySelector("span").textContent = `${shown + 1} of ${panels.length}`;
    window.scrollTo(0, 0);
  };

  const turn = (on) => {
    if (on) {
      panels = listPanels();
      wasDark = document.body.classList.contains("dark");
    }
    document.body.classList.toggle("pine-projector", on);
    document.body.classList.toggle("dark", !on && wasDark);
    bar().hidden = !on;
    if (on) show(0);
  };

  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("[data-projector]")) turn(!isOn());
    const step = event.target.closest("#projector-bar [data-step]");
    if (step) show(shown + Number(step.dataset.step));
  });

  document.addEventListener("keydown", (event) => {
    if (!isOn() || !(event.target instanceof Element)) return;
    // Arrows belong to whatever has the focus and uses them.
    if (event.target.closest("input, textarea, select, [role=listbox], [role=tab], [data-pick], [data-lesson]")) return;
    if (event.key === "ArrowRight" || event.key === "PageDown") show(shown + 1);
    else if (event.key === "ArrowLeft" || event.key === "PageUp") show(shown - 1);
    else return;
    event.preventDefault();
  });
})();
