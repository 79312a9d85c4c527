/* The first figure of the page: the answer of each method in each document order. The slider, a click on a mark, a
   dragged document and Play select an order; documents, bars and answers are updated. Nothing is computed here:
   viz/page/answers/order_table.py decides which answers are correct. */
(() => {
  "use strict";
  const STEP_MS = 1100;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)");
  const MARKS = { true: "✓", false: "✗" };
  const WORDS = { true: "correct", false: "incorrect" };

  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  const mount = ({ element, props, watch }) => {
    const part = (selector) => element.querySelector(selector);
    const play = part("[name=play]");
    const slider = part("[name=order]");
    const rows = new Map(); // by method
    let state = { methods: [], orders: [] };
    let shown = 0; // index of the order; -1 for one that was not computed
    let entered = []; // order of the documents in the form
    let timer = null;
    let first = -1; // index of the order before an animation that started by itself
    let left = 0; // orders that the animation has yet to show

    const letter = (document) => props.documents[document].letter;
    const nameOf = (order) => order.map(letter).join(" ");
    const isSame = (left, right) => left.length === right.length && left.every((one, place) => one === right[place]);

    // Drawing ---------------------------------------------------------------------------------------

    const newRow = (method) => {
      const row = part("template").content.firstElementChild.cloneNode(true);
      row.dataset.method = method.name;
      row.classList.toggle("page-invariant", method.is_order_invariant);
      row.querySelector("th b").textContent = method.label;
      row.querySelector("th span").textContent = method.note;
      return row;
    };

    const drawBars = (lane, bars) => {
      const places = [...bars].sort((left, right) => left.left - right.left);
      lane.setAttribute(
        "aria-label",
        bars.length ? `From far to near: ${places.map(({ document }) => letter(document)).join(" ")}` : "Not computed",
      );
      const kept = new Map([...lane.children].map((bar) => [Number(bar.dataset.document), bar]));
      for (const [document, bar] of kept) if (!bars.some((one) => one.document === document)) bar.remove();
      for (const { document, left, width, top, height } of bars) {
        const bar = kept.get(document) ?? lane.appendChild(window.document.createElement("span"));
        const { color, ink } = props.documents[document];
        bar.dataset.document = document;
        bar.textContent = height < 0.3 ? "" : letter(document); // a thinner bar has no room for it
        Object.assign(bar.style, {
          background: color,
          color: ink,
          left: `${100 * left}%`,
          width: `calc(${100 * width}% - 2px)`,
          top: `${100 * top}%`,
          height: `calc(${100 * height}% - 2px)`,
        });
        bar.classList.toggle("page-thin", height < 0.5);
      }
    };

    const valueOf = ({ verdict, text }) => verdict ?? text; // judges are compared by their verdicts

    const isChanged = (answer, { answers }) =>
      answer.is_comparable && valueOf(answer) !== valueOf(answers.find((other) => other?.is_comparable));

    const markOf = (answer, method) => {
      if (!answer) return "·";
      if (!answer.is_done) return "…";
      const letter = answer.verdict?.length === 1 ? answer.verdict : null;
      return MARKS[answer.is_correct] ?? letter ?? (isChanged(answer, method) ? "≠" : "=");
    };

    const kindOf = (answer, method) => {
      if (!answer?.is_done) return "open";
      return WORDS[answer.is_correct] ?? (isChanged(answer, method) ? "changed" : "same");
    };

    const drawTicks = (place, method) => {
      while (place.children.length > state.orders.length) place.lastChild.remove();
      while (place.children.length < state.orders.length) {
        const tick = place.appendChild(document.createElement("span"));
        tick.setAttribute("role", "img");
      }
      state.orders.forEach((order, index) => {
        const tick = place.children[index];
        const answer = method.answers[index];
        const kind = kindOf(answer, method);
        tick.textContent = markOf(answer, method);
        tick.dataset.kind = kind;
        tick.dataset.index = index;
        tick.toggleAttribute("data-shown", index === shown);
        tick.title = `${nameOf(order)}: ${answer ? [answer.verdict, answer.text].filter(Boolean).join(": ") : "not computed"}`;
        tick.setAttribute("aria-label", `Order ${nameOf(order)}: ${kind === "open" ? "not computed" : kind}`);
      });
    };

    const countOf = ({ answers }) => {
      const done = answers.filter((answer) => answer?.is_done);
      if (!done.length) return "";
      const comparable = done.filter((answer) => answer.is_comparable);
      const noun = done[0].verdict ? "verdict" : "answer";
      const kinds = plural(new Set(comparable.map(valueOf)).size, noun);
      if (done[0].is_correct === null) return kinds;
      return `${done.filter((answer) => answer.is_correct).length} of ${done.length} correct · ${kinds}`;
    };

    const drawAnswer = (cell, answer, method) => {
      const [mark, text] = cell.children;
      const kind = kindOf(answer, method);
      mark.textContent = answer?.is_done ? markOf(answer, method) : "";
      mark.dataset.kind = kind;
      mark.title = answer?.is_correct === null ? "" : state.rule;
      mark.setAttribute("aria-label", kind);
      text.textContent = answer?.text ?? (state.is_busy ? "…" : "not computed in this order");
      text.className = answer ? "" : "pine-muted";
      cell.title = answer?.text ?? "";
    };

    const drawRow = (method) => {
      const row = rows.get(method.name);
      const [, lane, answer, ticks] = row.children;
      drawBars(lane.firstElementChild, method.positions[shown] ?? []);
      drawAnswer(answer.firstElementChild, method.answers[shown], method);
      drawTicks(ticks.firstElementChild, method);
      ticks.lastElementChild.textContent = countOf(method);
    };

    const statusText = () => {
      if (!state.orders.length) return "No results yet.";
      if (shown < 0) return "This order is not computed.";
      return `Order ${shown + 1} of ${state.orders.length}: ${nameOf(state.orders[shown])}`;
    };

    const draw = () => {
      const body = part("tbody");
      for (const [name, row] of rows) {
        if (state.methods.some((method) => method.name === name)) continue;
        row.remove();
        rows.delete(name);
      }
      for (const method of state.methods) {
        if (!rows.has(method.name)) rows.set(method.name, newRow(method));
      }
      const nodes = state.methods.map(({ name }) => rows.get(name));
      if (nodes.some((node, place) => node !== body.children[place])) body.append(...nodes);
      state.methods.forEach(drawRow);
      const several = state.orders.length > 1;
      part("[data-orders]").textContent = several ? `All ${state.orders.length} orders` : "Order";
      play.hidden = slider.hidden = !several;
      slider.max = state.orders.length - 1;
      slider.value = shown;
      slider.setAttribute("aria-valuetext", statusText());
      play.textContent = timer ? "❚❚ Pause" : `▶ Play ${plural(state.orders.length, "order")}`;
      part(".page-order-foot strong").textContent = state.finding;
      part("[data-legend]").textContent = state.legend;
      part(".page-order-source").hidden = !state.source;
      part(".page-order-source span").textContent = state.source;
      part("[role=status]").textContent = statusText();
    };

    // Selecting ---------------------------------------------------------------------------------------

    const select = (index) => {
      shown = index;
      draw();
      document.dispatchEvent(new CustomEvent("pine:order", { detail: state.orders[index] }));
    };

    const pause = () => {
      clearInterval(timer);
      timer = null;
      draw();
    };

    const start = (from = -1) => {
      first = from;
      left = state.orders.length;
      timer = setInterval(() => {
        left -= 1;
        if (left < 0 || state.is_busy) return pause();
        select((shown + 1) % state.orders.length);
      }, STEP_MS);
      draw();
    };

    element.addEventListener("click", ({ target }) => {
      const tick = target.closest(".page-ticks span");
      if (tick) {
        pause();
        select(Number(tick.dataset.index));
      } else if (target === play) {
        if (timer) pause();
        else start();
      } else if (target.closest("[name=base-rate]")) {
        const section = document.querySelector("#base-rate");
        if (!section.querySelector(".page-base-rate")?.checkVisibility()) section.querySelector("button").click();
        section.scrollIntoView({ behavior: isStill.matches ? "auto" : "smooth" });
      }
    });

    slider.addEventListener("input", () => {
      const index = Number(slider.value);
      pause();
      select(index);
    });

    document.addEventListener("pine:ordered", ({ detail }) => {
      entered = detail;
      if (state.orders.length === 0 || state.orders[0].length !== entered.length) return;
      const index = state.orders.findIndex((order) => isSame(order, entered));
      if (timer && index !== shown) {
        // Such as that of a restored draft, which is the order to end with.
        if (first >= 0) first = index;
        left = state.orders.length;
        if (index < 0) pause();
      }
      shown = index;
      draw();
    });

    // Any other action ends the animation. One that started by itself returns to its first order, unless the action is
    // in the documents, which must not move away from the pointer.
    const interrupt = ({ target }) => {
      if (!timer || element.contains(target)) return;
      pause();
      if (first >= 0 && !target.closest?.("#documents")) select(first);
    };
    for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, interrupt, true);

    const read = () => {
      const before = state;
      state = JSON.parse(props.value);
      const isOther = !isSame(before.orders.flat(), state.orders.flat());
      if (isOther) {
        clearInterval(timer);
        timer = null;
      }
      if (isOther || shown < 0) shown = state.shown;
      const current = state.orders.findIndex((order) => isSame(order, entered));
      if (current >= 0) shown = current;
      draw();
      return window.pineGuess.offer({ element, state, documents: props.documents, select }, playOnce);
    };

    /* Play the recorded answers of the first example, when the page opens. */
    const playOnce = () => {
      if (state.source && !isStill.matches) start(shown);
    };

    watch("value", read);
    if (!read()) playOnce();
  };

  window.pineOrderTable = { mount };
})();
