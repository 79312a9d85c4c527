/* The buttons that start: the first runs the missing orders, or plays all if none is missing; the second runs the order
   of the documents. viz/page/answers/start.py decides which; the buttons of the runs are hidden. */

export const mount = ({ element, props, watch }) => {
  const [all, one] = element.querySelectorAll("button");
  let isPlaying = false;

  const draw = () => {
    const { label, plays, runs_one: runsOne, problem } = JSON.parse(props.value);
    const disable = (button, reason) => Object.assign(button, { disabled: Boolean(reason), title: reason });
    all.textContent = plays && isPlaying ? "❚❚ Pause" : label;
    disable(all, plays ? "" : problem);
    disable(one, problem);
    one.hidden = runsOne;
  };

  const press = (name) => document.getElementById(name).click();

  all.addEventListener("click", () => {
    const { plays, runs_one: runsOne } = JSON.parse(props.value);
    if (plays) document.dispatchEvent(new CustomEvent("pine:play"));
    else press(runsOne ? "run" : "shuffle");
  });
  one.addEventListener("click", () => press("run"));
  document.addEventListener("pine:playing", ({ detail }) => {
    isPlaying = detail;
    draw();
  });
  watch("value", draw);
  draw();
};
