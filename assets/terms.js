/* Explanations: an element with data-term, the id of an explanation, shows it while hovered or focused, and when touched. */
import { closest } from "../viz/drawing/common.js";

const GAP = 6;

const termOf = (target) => closest(target, "[data-term]");

/* The dtype beside "Change model" is explained while this button has the focus: the dtype itself is no Tab stop. */
const focusedTerm = (target) =>
  target.id === "choose-model" ? document.querySelector("#model-status [data-term]") : termOf(target);

/* Show the explanation below its term, or above where there is no room. */
const show = (term) => {
  const box = term && document.getElementById(term.dataset.term);
  if (!box || box.matches(":popover-open")) return;
  box.showPopover();
  const { left, top, bottom } = term.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const isBelow = bottom + GAP + height <= innerHeight || top < height + GAP;
  box.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
  box.style.top = `${isBelow ? bottom + GAP : top - height - GAP}px`;
};

const hide = (term) => document.getElementById(term?.dataset.term)?.hidePopover();

// Not pointerover, which a term also gets that is moved below a resting pointer.
document.addEventListener("pointermove", ({ target, pointerType }) => pointerType === "mouse" && show(termOf(target)));
document.addEventListener("pointerout", ({ target, relatedTarget }) => {
  const term = termOf(target);
  if (term && !term.contains(relatedTarget) && term !== document.activeElement) hide(term);
});
document.addEventListener("focusin", ({ target }) => target.matches(":focus-visible") && show(focusedTerm(target)));
document.addEventListener("focusout", ({ target }) => hide(focusedTerm(target)));
document.addEventListener("click", ({ target }) => show(termOf(target)));
