/* plotly figures: layout, selection, keyboard navigation, screen-reader text, table of numbers, and export.

   trace.meta holds the selection of each mark: {x: [...], y: [...]} with an object for each column and row, or
   {y: {token: "#"}} where "#" is the value on the axis. A selection is sent to pictures.js, or to the figure's own
   function. layout.meta has name, caption, and panels, the number of squares of tokens, with their
   columns. meta.levels: see viz/export/standalone.py. meta.cells: texts of the table in place of z, without markup. */
import { documentHtml, h, isStill, saveFile, textBlob } from "./common.js";
import { translatedFigure } from "./figure_texts.js";
import { numberFiles, select, tableOf } from "./pictures.js";

const NARROW = 500;
const BESIDE = 56; // pixels for the names of segments at the left of squares, and below them
const BELOW = 24;
const MAX_ROWS = 64;

// plotly.js, when a figure is first needed -------------------------------------------------------

let plotly = ""; // path of plotly.js; none on a standalone page, which contains it
let loading = null;

export const setPlotly = (path) => (plotly = path);

const address = () => `${window.gradio_config?.root ?? "."}${plotly}`;

const loaded = () => {
  if (window.Plotly) return Promise.resolve();
  loading ??= new Promise((resolve, reject) => {
    const script = h("script", { src: address(), onload: resolve, onerror: reject });
    document.head.append(script);
  }).catch(() => {
    loading = null;
    throw new Error("plotly.js could not be loaded");
  });
  return loading;
};

// Language ----------------------------------------------------------------------------------------

let translate = (text) => text;

/* Translate figures by a function of texts, also those that are drawn. */
export const setTranslate = (translated) => {
  translate = translated;
  document.querySelectorAll(".pine-plot").forEach((gd) => gd.pineDraw());
};

// The words of plotly itself, which it looks up in the dictionary of a locale.
const WORDS = ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes", "Double-click to zoom back out"];

const inLanguage = (config) => {
  const dictionary = Object.fromEntries(WORDS.map((word) => [word, translate(word)]));
  return { ...config, locale: "page", locales: { page: { dictionary, format: {} } } };
};

// Layout ------------------------------------------------------------------------------------------

/* Return a trace with the values of its levels, see viz/export/standalone.py. */
export const unpacked = (trace) => {
  if (!trace.meta?.levels) return trace;
  const [low, high] = trace.meta.levels;
  const [rows, columns] = trace.z.shape.split(",").map(Number);
  const bytes = Uint8Array.from(atob(trace.z.bdata), (sign) => sign.charCodeAt(0));
  const values = Array.from({ length: 256 }, (_, level) => (level ? low + ((level - 1) / 254) * (high - low) : null));
  const z = Array.from({ length: rows }, (_, row) =>
    Array.from(bytes.subarray(row * columns, (row + 1) * columns), (level) => values[level]),
  );
  return { ...trace, z };
};

// Squares of tokens: the height follows from the width. On narrow pages they are below each other, each below its
// title; otherwise gaps are as in viz/figures/panels.py.
const layoutSquares = (layout, width, margin) => {
  const { panels, columns } = layout.meta;
  const isNarrow = width < NARROW;
  const across = isNarrow ? 1 : columns;
  const down = Math.ceil(panels / across);
  const side = ((width - BESIDE) * (1 - 0.05 * (across - 1))) / across;
  const below = margin.t + BELOW;
  const gap = isNarrow ? below / (down * side + (down - 1) * below) : 0.08;
  const share = (1 - gap * (down - 1)) / down;
  const height = Math.round(side / share) + margin.t + margin.b + BELOW;
  if (!isNarrow) return { ...layout, height: Math.min(height, layout.height) };
  const placed = { ...layout, height };
  for (let panel = 0; panel < panels; panel++) {
    const number = panel ? panel + 1 : "";
    const top = 1 - panel * (share + gap);
    placed[`xaxis${number}`] = { ...layout[`xaxis${number}`], domain: [0, 1] };
    placed[`yaxis${number}`] = {
      ...layout[`yaxis${number}`], domain: [Math.max(top - share, 0), top], showticklabels: true,
    };
  }
  return placed;
};

// On narrow pages, Play is above the slider.
const withPlayBelow = (layout, margin) => {
  const [slider] = layout.sliders;
  margin.b += 44;
  return { ...layout, height: layout.height + 44, sliders: [{ ...slider, x: 0, len: 1, pad: { t: 84, b: 0 } }] };
};

// The zoom is kept when the same axes are drawn again.
const frameOf = (layout) =>
  JSON.stringify(Object.entries(layout).filter(([name]) => /^[xy]axis/.test(name)).map(([, axis]) => axis.range));

const measureOf = ({ coloraxis }) => (coloraxis?.showscale === false ? "" : coloraxis?.colorbar?.title?.text);

const onPage = (layout, width) => {
  const isNarrow = width < NARROW;
  const margin = { ...layout.template?.layout?.margin, ...layout.margin };
  let placed = layout.meta?.panels ? layoutSquares(layout, width, margin) : { ...layout };
  if (document.body.classList.contains("pine-projector")) placed.font = { ...layout.template?.layout?.font, size: 17 };
  if (isNarrow && layout.sliders) placed = withPlayBelow(placed, margin);
  // The title of the color bar does not fit beside it; the caption contains it.
  if (isNarrow && measureOf(layout)) {
    const { coloraxis } = layout;
    placed.coloraxis = { ...coloraxis, colorbar: { ...coloraxis.colorbar, len: 0.9, title: { text: "" } } };
  }
  const ours = { title: undefined, autosize: true, uirevision: frameOf(layout), dragmode: isNarrow ? false : "zoom" };
  return { ...placed, margin, ...ours };
};

const withoutMotion = (layout) => {
  const plain = JSON.stringify(layout).replaceAll(/"transition":\{"duration":\d+\}/g, '"transition":{"duration":0}');
  return JSON.parse(plain);
};

// The cursor: trace, row, column; lines and bars have one row each ---------------------------------

const isMap = (trace) => trace.type === "heatmap";
const isAcross = (trace) => trace.orientation === "h";
const shownTraces = (gd) => gd._fullData.filter((trace) => trace.visible === true);
const lengthOf = (trace) => (isAcross(trace) ? trace.y : trace.x).length;
const sizeOf = (trace) => (isMap(trace) ? [trace.z.length, trace.z[0]?.length ?? 0] : [1, lengthOf(trace)]);

const valueOn = (trace, axis, index) => {
  if (trace[axis]) return trace[axis][index];
  return (trace[`${axis}0`] ?? 0) + index * (trace[`d${axis}`] ?? 1);
};

const cursorOf = (gd) => {
  const traces = shownTraces(gd);
  const cursor = (gd.pineCursor ??= { trace: 0, row: 0, column: 0 });
  cursor.trace = Math.min(cursor.trace, traces.length - 1);
  const trace = traces[cursor.trace];
  const [rows, columns] = sizeOf(trace);
  cursor.row = Math.min(cursor.row, rows - 1);
  cursor.column = Math.min(cursor.column, columns - 1);
  return { cursor, trace, traces };
};

const selectionAt = (rule, index, value) => {
  if (Array.isArray(rule)) return rule[index];
  return rule && Object.fromEntries(Object.entries(rule).map(([key, pick]) => [key, pick === "#" ? value : pick]));
};

/* Return what a mark of a trace selects. */
export const selectionOf = (trace, row, column) => {
  const { x, y } = trace.meta ?? {};
  if (!isMap(trace)) return { ...selectionAt(y, column, trace.y[column]), ...selectionAt(x, column, trace.x[column]) };
  return { ...selectionAt(y, row, valueOn(trace, "y", row)), ...selectionAt(x, column, valueOn(trace, "x", column)) };
};

const send = (gd, what) => {
  if (Object.keys(what).length) (gd.pineSelect ?? select)(what);
};

const hoverText = (gd) => {
  const lines = (text) => {
    const parts = text.querySelectorAll("tspan.line");
    return [...(parts.length ? parts : [text])].map((line) => line.textContent).join(", ");
  };
  return [...gd.querySelectorAll(".hoverlayer .hovertext text")].map(lines).filter(Boolean).join("; ");
};

const announceCursor = (gd) => {
  const { cursor, trace } = cursorOf(gd);
  const at = isMap(trace)
    ? { xval: placeOn(gd, trace, "x", cursor.column), yval: placeOn(gd, trace, "y", cursor.row) }
    : [{ curveNumber: trace.index, pointNumber: cursor.column }];
  window.Plotly.Fx.hover(gd, at, trace.xaxis + trace.yaxis);
  // After quick key presses, plotly draws the last hover label with a delay.
  const say = () => (gd.pineStatus.textContent = hoverText(gd));
  say();
  clearTimeout(gd.pineSaying);
  gd.pineSaying = setTimeout(say, 100);
};

const axisOf = (id) => `${id[0]}axis${id.slice(1)}`;

/* Return the place of a row or column on its axis: its index, if the axis has categories. */
const placeOn = (gd, trace, letter, index) =>
  gd._fullLayout[axisOf(trace[`${letter}axis`])].type === "category" ? index : valueOn(trace, letter, index);

const axesOf = (gd) => [...gd._fullLayout._subplots.xaxis, ...gd._fullLayout._subplots.yaxis].map(axisOf);

const zoom = (gd, key) => {
  const { cursor, trace } = cursorOf(gd);
  if (key === "0") {
    return window.Plotly.relayout(gd, Object.fromEntries(axesOf(gd).map((name) => {
      const { range, autorange } = gd.pineFigure.layout[name] ?? {};
      return range ? [`${name}.range`, [...range]] : [`${name}.autorange`, autorange ?? true];
    }))).then(() => (gd.pineIsZoomed = false));
  }
  const factor = key === "+" ? 0.5 : 2;
  const changes = Object.entries({ x: cursor.column, y: cursor.row }).map(([letter, index]) => {
    const name = axisOf(trace[`${letter}axis`]);
    const [start, stop] = gd._fullLayout[name].range;
    const middle = isMap(trace) ? placeOn(gd, trace, letter, index) : (start + stop) / 2;
    return [`${name}.range`, [middle + (start - middle) * factor, middle + (stop - middle) * factor]];
  });
  gd.pineIsZoomed = true;
  return window.Plotly.relayout(gd, Object.fromEntries(changes));
};

const STEPS = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  PageUp: [-20, 0], PageDown: [20, 0], Home: [0, -1e9], End: [0, 1e9],
};

const onKey = (gd, event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || !shownTraces(gd).length) return;
  const { cursor, trace, traces } = cursorOf(gd);
  const step = STEPS[event.key];
  if (step) {
    const [rows, columns] = sizeOf(trace);
    // Horizontal bars: up and down move along a trace, left and right to the next trace.
    const [down, across] = isAcross(trace) ? [step[1], step[0]] : step;
    if (isMap(trace)) cursor.row = Math.max(0, Math.min(rows - 1, cursor.row + down));
    else cursor.trace = (cursor.trace + Math.sign(down) + traces.length) % traces.length;
    cursor.column = Math.max(0, Math.min(columns - 1, cursor.column + across));
    announceCursor(gd);
  } else if (event.key === "Enter" || event.key === " ") {
    send(gd, selectionOf(trace, cursor.row, cursor.column));
  } else if (["+", "-", "0"].includes(event.key)) {
    zoom(gd, event.key).then(() => announceCursor(gd));
  } else if (event.key === "Escape") {
    window.Plotly.Fx.unhover(gd);
    send(gd, { clear: true });
  } else return;
  event.preventDefault();
  event.stopPropagation();
};

// Numbers ------------------------------------------------------------------------------------------

const textOf = (value) => {
  if (typeof value !== "string") return value ?? null;
  const plain = value.replaceAll(/<[^>]*>/g, " ").trim();
  return plain.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
};
const numberOf = (value) => (typeof value === "number" && !Number.isFinite(value) ? null : textOf(value));
const tickOf = (gd, axis, value) => {
  const { tickvals, ticktext } = gd.layout[axis] ?? {};
  const place = ticktext && tickvals.length === ticktext.length ? [...tickvals].indexOf(value) : -1;
  return place < 0 ? numberOf(value) : textOf(ticktext[place]);
};

const nameOf = (gd, trace) => textOf(gd.pineFigure.data[trace.index].name ?? "");

const mapRows = (gd, trace, most) => {
  const [down] = sizeOf(trace);
  const only = down > most ? [gd.pineCursor?.row ?? 0] : [...Array(down).keys()];
  return only.map((row) => [
    nameOf(gd, trace),
    tickOf(gd, axisOf(trace.yaxis), valueOn(trace, "y", row)),
    ...(trace.meta?.cells?.[row] ?? Array.from(trace.z[row], numberOf)),
  ]);
};

/* Return {caption, columns, rows} of all traces; of a matrix of more than `most` rows, the row at the cursor. */
const numbersOf = (gd, most = Infinity) => {
  const traces = shownTraces(gd).filter((trace) => sizeOf(trace)[1]);
  const caption = gd.pineFigure.layout.meta?.caption ?? "";
  if (!traces.length) return { caption, columns: [], rows: [] };
  if (isMap(traces[0])) {
    const across = Array.from({ length: sizeOf(traces[0])[1] }, (_, column) =>
      String(tickOf(gd, axisOf(traces[0].xaxis), valueOn(traces[0], "x", column))));
    return { caption, columns: ["", translate("row"), ...across], rows: traces.flatMap((trace) => mapRows(gd, trace, most)) };
  }
  const { xaxis, yaxis } = gd._fullLayout;
  const named = (axis, other) => textOf(gd.pineFigure.layout[axis]?.title?.text) || other;
  const columns = ["", named("xaxis", "x"), named("yaxis", "y")];
  const starts = traces.some((trace) => trace.base) ? [translate("start")] : [];
  const rows = traces.flatMap((trace) =>
    Array.from({ length: lengthOf(trace) }, (_, index) => [
      nameOf(gd, trace),
      numberOf(trace.x[index]),
      tickOf(gd, axisOf(trace.yaxis), trace.y[index]),
      ...(starts.length ? [numberOf(trace.base?.[index])] : []),
    ]));
  if (starts.length) columns[1] = translate("length");
  return { caption, columns: [...columns, ...starts], rows };
};

// Saving ---------------------------------------------------------------------------------------------

const imageOf = (gd, format) => {
  const { data, layout } = gd.pineFigure;
  const { width, height } = gd.getBoundingClientRect();
  const ranges = Object.fromEntries(axesOf(gd).map((name) => [name, {
    ...layout[name], range: gd._fullLayout[name].range, autorange: false,
  }]));
  const whole = { ...layout, ...ranges, width: Math.max(width, 700), height: Math.max(height, layout.height) };
  const figure = { data: data.map(unpacked), layout: whole };
  return window.Plotly.toImage(figure, { format, width: whole.width, height: whole.height, scale: 2 });
};

// Decoded without fetch, which the security policy of a standalone page forbids.
const blobOf = (address) => {
  const [, type, base64, content] = address.match(/^data:([^;,]*)[^;,]*(;base64)?(?:;[^,]*)?,(.*)$/s);
  if (!base64) return new Blob([decodeURIComponent(content)], { type });
  return new Blob([Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0))], { type });
};

const pageOf = async (gd) => {
  const script = await (await fetch(address())).text();
  const { data, layout, frames, config } = gd.pineFigure;
  const figure = JSON.stringify({ data: data.map(unpacked), layout, frames, config }).replaceAll("<", "\\u003c");
  // Created as elements: a page inlines this script, which must not contain a script tag.
  const elementHtml = (tag, textContent) => h(tag, { textContent }).outerHTML;
  const parts = [
    elementHtml("p", layout.meta?.caption ?? ""),
    elementHtml("script", script),
    elementHtml("script", `Plotly.newPlot("figure", ${figure})`),
  ];
  return documentHtml({
    title: gd.pineTitle.textContent,
    styles: "body{margin:24px;font-family:system-ui,sans-serif;color:#1f2937}",
    body: `<div id="figure"></div>${parts.join("")}`,
  });
};

const FORMATS = {
  png: async (gd) => blobOf(await imageOf(gd, "png")),
  svg: async (gd) => blobOf(await imageOf(gd, "svg")),
  html: async (gd) => textBlob(await pageOf(gd), "text/html"),
  ...numberFiles(numbersOf),
};

const save = async (gd, format) => {
  saveFile(await FORMATS[format](gd), `${gd.pineFigure.layout.meta?.name ?? "figure"}.${format}`);
};

// A figure with its title, caption and menus ---------------------------------------------------------

const createFigureShell = (root) => {
  // Figures are translated before they are drawn, because their layout follows from the texts.
  const ours = { translate: false, "aria-roledescription": "figure" };
  const gd = h("div", { className: "pine-plot", tabIndex: 0, role: "application", ...ours });
  gd.pineTitle = h("p", { className: "pine-figure-title" });
  gd.pineCaption = h("figcaption", {});
  gd.pineStatus = h("p", { className: "visually-hidden", role: "status", translate: false });
  const labeled = { role: "region", "aria-label": "Data of this chart" };
  const place = h("div", { className: "pine-scroll", tabIndex: 0, ...labeled });
  gd.pineTable = h("details", { className: "pine-figure-numbers" }, h("summary", { textContent: "Data table" }), place);
  gd.pineTable.addEventListener("toggle", () => fillTable(gd));
  const menu = h("details", { className: "pine-figure-save" }, h("summary", { textContent: "Export" }));
  // A standalone page has no URL of plotly.js.
  for (const format of Object.keys(FORMATS).filter((one) => one !== "html" || plotly)) {
    const button = h("button", { type: "button", textContent: format.toUpperCase() });
    button.addEventListener("click", () => save(gd, format));
    menu.append(button);
  }
  const foot = h("div", { className: "pine-figure-foot" }, gd.pineTable, menu);
  root.replaceChildren(gd.pineTitle, gd, gd.pineCaption, gd.pineStatus, foot);
  gd.addEventListener("keydown", (event) => event.target === gd && onKey(gd, event));
  gd.addEventListener("blur", () => gd._fullLayout && window.Plotly.Fx.unhover(gd));
  return gd;
};

const fillTable = (gd) => {
  const place = gd.pineTable.querySelector(".pine-scroll");
  if (gd.pineTable.open) place.replaceChildren(tableOf(numbersOf(gd, MAX_ROWS)));
};

const listen = (gd) => {
  gd.on("plotly_click", ({ points: [point] }) => {
    const [row, column] = isMap(point.data) ? point.pointIndex : [0, point.pointNumber];
    const trace = gd._fullData[point.curveNumber];
    gd.pineCursor = { trace: shownTraces(gd).indexOf(trace), row, column };
    send(gd, selectionOf(trace, row, column));
    if (gd.pineTable.open) fillTable(gd);
  });
};

const react = async (gd, figure) => {
  gd.pineFigure = figure;
  if (!gd.clientWidth) {
    gd.pineWidth = 0; // drawn once it is visible
    return;
  }
  const { data, frames, config, layout } = figure;
  const placed = onPage(isStill() ? withoutMotion(layout) : layout, gd.clientWidth);
  const isFirst = !gd._fullLayout;
  // plotly keeps only a zoom by mouse.
  if (gd.pineIsZoomed && placed.uirevision === gd.layout.uirevision) {
    for (const name of axesOf(gd)) placed[name] = { ...placed[name], range: [...gd._fullLayout[name].range] };
  }
  gd.pineTitle.textContent = textOf(layout.title?.text ?? "");
  const measure = gd.clientWidth < NARROW && measureOf(layout);
  gd.pineCaption.textContent = [layout.meta?.caption, measure && translate(`Color: ${textOf(measure)}.`)].filter(Boolean).join(" ");
  const keys = translate("Arrow keys move, Enter selects, + and - zoom, 0 resets.");
  gd.setAttribute("aria-label", `${gd.pineTitle.textContent}. ${keys}`);
  gd.style.height = `${placed.height}px`;
  gd.pineWidth = gd.clientWidth;
  // plotly would keep the height for the previous width; the ResizeObserver in mount resizes instead.
  const ours = { ...inLanguage(config), responsive: false };
  await window.Plotly.react(gd, { data: data.map(unpacked), layout: placed, frames, config: ours });
  if (isFirst) listen(gd);
  fillTable(gd);
};

/* Draw the figure of `value()` into an element, again after each change that `watch` reports. pick: function that
   receives selections, null for that of pictures.js. */
export const mount = (element, value, watch, pick) => {
  const root = element.querySelector("figure");
  root.className = "pine-figure pine-plotted";
  let gd = null;
  const draw = async () => {
    const content = value();
    root.hidden = !content;
    if (!content) return;
    await loaded();
    if (!gd) {
      gd = createFigureShell(root);
      new ResizeObserver(() => {
        if (gd.pineFigure && gd.clientWidth !== gd.pineWidth) react(gd, gd.pineFigure);
      }).observe(gd);
    }
    Object.assign(gd, { pineSelect: pick, pineDraw: draw });
    if (value() === content) await react(gd, translatedFigure(JSON.parse(content), translate));
  };
  watch(draw);
  draw();
};

/* <pine-figure>: a figure from the JSON of a script or <data>, or from several of which buttons with data-show choose
   one. It is drawn when it is first visible, selects nothing, and highlights marks of layout.meta.marks by name. */
class PineFigure extends HTMLElement {
  connectedCallback() {
    const visible = new ResizeObserver(() => {
      if (!this.clientWidth) return;
      visible.disconnect();
      this.draw();
    });
    visible.observe(this);
    this.addEventListener("click", ({ target }) => {
      const button = target.closest("[data-show]");
      if (!button) return;
      for (const other of this.querySelectorAll("[data-show]")) other.ariaPressed = String(other === button);
      this.shown = Number(button.dataset.show);
      this.redraw();
    });
  }

  draw() {
    const data = [...this.querySelectorAll("script, data")];
    const watch = (redraw) => (this.redraw = redraw);
    if (!this.redraw) mount(this, () => data[this.shown ?? 0].textContent, watch, () => {});
  }

  mark(name) {
    const gd = this.querySelector(".pine-plot");
    if (!gd?._fullLayout) return;
    const { shapes = [], meta } = gd.pineFigure.layout;
    window.Plotly.relayout(gd, { shapes: [...shapes, ...(meta?.marks?.[name] ?? [])] });
  }
}
customElements.define("pine-figure", PineFigure);

// Figures that were never visible are drawn before printing.
window.addEventListener("beforeprint", () => {
  document.documentElement.classList.add("pine-printing");
  document.querySelectorAll("pine-figure").forEach((figure) => figure.draw());
});
window.addEventListener("afterprint", () => document.documentElement.classList.remove("pine-printing"));
