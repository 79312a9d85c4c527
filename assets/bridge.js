/* Events of the tab Internals, whose data gradio would lose or mix up; viz/page/internals/view.py handles them. */
import { onSelect } from "../viz/drawing/pictures.js";

let selections = []; // the last ones, numbered; they persist when the bridge is recreated with its tab
let waiting = null;
let clicks = 0;

/* Send selections as the value of a widget.

   The value is the last selections, numbered: of queued events gradio (6.31) repeats the data of the first, which would
   lose the second. Selections of one moment are sent as one event, because gradio would run several at once and show
   them in any order. */
export const mount = ({ props, trigger, most }) =>
  onSelect((what) => {
    selections = [...selections, [(selections.at(-1)?.[0] ?? 0) + 1, what]].slice(-most);
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      props.value = JSON.stringify(selections);
      trigger("select");
    });
  });

/* Return the inputs of an event with its number as the last one. Quick clicks are separate requests, which may arrive in
   any order; the last click decides which tab is open. */
export const countClick = (...values) => [...values.slice(0, -1), (clicks += 1)];
