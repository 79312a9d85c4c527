/* Boxes of methods that do not fit the model are disabled, with the reason as their tooltip. */

export const mount = ({ props, watch }) => {
  const draw = () => {
    const reasons = JSON.parse(props.value || "{}");
    for (const box of document.querySelectorAll(".page-methods input[type=checkbox]")) {
      const label = box.closest("label");
      const reason = reasons[box.name];
      if (reason || label.dataset.misfit) {
        if (box.disabled !== Boolean(reason)) box.disabled = Boolean(reason);
        if (label.title !== (reason ?? "")) label.title = label.dataset.misfit = reason ?? "";
      }
    }
  };
  watch("value", draw);
  // Groups are created when their tab is opened; gradio enables all boxes of a group that changes.
  let waiting = 0;
  new MutationObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  }).observe(document.body, { attributeFilter: ["disabled"], childList: true, subtree: true });
  draw();
};
