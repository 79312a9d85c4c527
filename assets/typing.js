/* Timers. Hidden buttons are clicked when the user pauses: at each letter they would delay the typing. The
   status line of a run counts the seconds since its last message. */

const PAUSES_MS = { "count-form": 250, "keep-draft": 800 };
const waiting = {};
const typed = (event) => {
  if (!event.target.closest?.("#request-form")) return;
  for (const [name, pause] of Object.entries(PAUSES_MS)) {
    clearTimeout(waiting[name]);
    waiting[name] = setTimeout(() => document.getElementById(name)?.click(), pause);
  }
};
for (const kind of ["input", "change"]) document.addEventListener(kind, typed);

setInterval(() => {
  for (const { dataset } of document.querySelectorAll(".page-notice-running")) {
    dataset.seconds = Number(dataset.seconds ?? 0) + 1;
  }
}, 1000);
