/* HTML pictures: selection, preview, keyboard navigation, table of numbers, and export.

   Events are delegated from the document, so that pictures that are added later need no setup. The page and every
   exported page use this file. Attributes that viz/ renders:
   data-pick      JSON of the selection by click, Enter or space bar
   data-readout   sentence in the preview line of the picture while the element is hovered or focused; default: its title
   data-save      format of an export button
   <details> of class pine-more, with an id, stay open or closed when their picture is drawn again. */
import { closest, h, saveFile, svg } from "./common.js";

const PICTURE = ".pine-picture";
const pickable = (node) => closest(node, "[data-pick]");

// Selection and preview -------------------------------------------------------------------------

let receive = null;

/* Set the function that receives each selection; without one, nothing is selected. */
export const onSelect = (receiver) => (receive = receiver);

export const select = (what) => receive?.(what);

const pick = (element) => {
  if (!receive) return;
  remember(element);
  select(JSON.parse(element.dataset.pick));
};

// A selection redraws the picture; the focus then returns to the same element.
let left = null;

const placeOf = (element) => {
  const root = element.closest(".gradio-container [id]");
  return root && { id: root.id, index: [...root.querySelectorAll("[data-pick]")].indexOf(element) };
};

const remember = (element) => {
  left = element === document.activeElement ? { ...placeOf(element), element, pick: element.dataset.pick } : null;
};

document.addEventListener("pointerdown", () => {
  left = null;
});

// The focused element was removed, or gradio has reused it for another row.
const hasLostFocus = () => {
  const focused = document.activeElement;
  return focused === document.body || (focused === left.element && focused.dataset.pick !== left.pick);
};

const restoreFocus = () => {
  if (!left?.id || !hasLostFocus()) return;
  const all = [...(document.getElementById(left.id)?.querySelectorAll("[data-pick]") ?? [])];
  const matches = all.filter((element) => element.dataset.pick === left.pick);
  const nearest = (element) => Math.abs(all.indexOf(element) - left.index);
  const back = matches.sort((one, other) => nearest(one) - nearest(other))[0];
  if (!back) return;
  if (back.tabIndex < 0) back.tabIndex = 0;
  back.focus({ preventScroll: true });
  left = { ...left, element: back };
};

const wordsOf = (node, picture) => {
  const mark = closest(node, "[data-readout], [title]");
  if (!mark || !picture.contains(mark)) return "";
  return mark.dataset.readout || mark.getAttribute("title");
};

// Without a hovered mark, the preview is of the focused one: scrolling also moves the mouse over marks.
const preview = (around, mark) => {
  const picture = closest(around, PICTURE);
  const line = picture && picture.querySelector(".pine-readout");
  if (line) line.textContent = wordsOf(mark, picture) || wordsOf(document.activeElement, picture) || line.dataset.defaultText;
};

document.addEventListener("click", (event) => {
  const target = pickable(event.target);
  if (target) pick(target);
  const button = closest(event.target, "[data-save]");
  if (button) save(button.closest(PICTURE), button.dataset.save);
});

document.addEventListener("mouseover", (event) => preview(event.target, event.target));
document.addEventListener("focusin", (event) => preview(event.target, event.target));
document.addEventListener("mouseout", (event) => preview(event.target, null));
document.addEventListener("focusout", (event) => preview(event.target, null));

// Keyboard: arrows move between the cells of a table, Enter and space select, Escape clears ------------

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

const neighbor = (element, [down, across]) => {
  const all = [...element.closest(".pine-roving-focus").querySelectorAll("[data-pick]")];
  const box = element.getBoundingClientRect();
  const middle = (rect) => [rect.top + rect.height / 2, rect.left + rect.width / 2];
  const [y, x] = middle(box);
  let best = null;
  let least = Infinity;
  for (const other of all) {
    const [otherY, otherX] = middle(other.getBoundingClientRect());
    const along = (otherY - y) * down + (otherX - x) * across;
    const aside = Math.abs((otherY - y) * across) + Math.abs((otherX - x) * down);
    const far = along + 4 * aside;
    if (other !== element && along > 1 && far < least) [best, least] = [other, far];
  }
  return best;
};

document.addEventListener("keydown", (event) => {
  const isTaken = event.target.closest("input, textarea, [role=listbox]") || document.querySelector(":popover-open");
  if (event.key === "Escape" && receive && !isTaken) {
    const chosen = pickable(event.target);
    if (chosen) remember(chosen);
    select({ clear: true });
    return;
  }
  const target = pickable(event.target);
  if (!target) return;
  const isButton = target.tagName === "BUTTON";
  if (!isButton && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    pick(target);
  } else if (STEPS[event.key] && target.closest(".pine-roving-focus")) {
    const next = neighbor(target, STEPS[event.key]);
    if (next) {
      event.preventDefault();
      target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  }
});

// Open details ------------------------------------------------------------------------------------

// Recorded on click: a redraw of the picture may close the same element.
const opened = new Map();
document.addEventListener("click", ({ target }) => {
  const details = closest(target, "summary")?.parentElement;
  if (details && details.matches("details.pine-more[id]")) opened.set(details.id, !details.open);
});
const openAgain = () => {
  for (const [id, open] of opened) {
    const details = document.getElementById(id);
    if (details && details.open !== open) details.open = open;
  }
};

// In this order, because elements in closed details cannot have the focus.
new MutationObserver(() => {
  openAgain();
  restoreFocus();
}).observe(document, { childList: true, subtree: true, attributeFilter: ["open", "data-pick"] });

// Numbers -------------------------------------------------------------------------------------------

const numbersOf = (picture) => JSON.parse(picture.querySelector(".pine-numbers").textContent);

export const tableOf = (numbers) => {
  const table = h("table", { className: "pine-list" });
  table.createCaption().textContent = numbers.caption;
  const head = table.createTHead().insertRow();
  head.append(...numbers.columns.map((textContent) => h("th", { scope: "col", textContent })));
  const body = table.createTBody();
  for (const values of numbers.rows) {
    const row = body.insertRow();
    for (const value of values) row.insertCell().textContent = value === null ? "–" : String(value);
  }
  return table;
};

document.addEventListener(
  "toggle",
  (event) => {
    const details = event.target;
    if (!(details instanceof Element) || !details.matches(".pine-numbers-table")) return;
    const place = details.querySelector(".pine-scroll");
    if (details.open && !place.firstChild) place.append(tableOf(numbersOf(details.closest(PICTURE))));
  },
  true,
);

export const csvOf = ({ columns, rows }) => {
  const field = (value) => {
    const text = value === null ? "" : String(value);
    // A spreadsheet would evaluate a text that starts like a formula.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
};

// Export as SVG: rectangles and text at the positions of the browser's layout ----------------------------

const INVISIBLE = ".visually-hidden, template, details, .pine-save";

const isVisible = (color) => color && color !== "transparent" && !/rgba\(.*, 0\)$/.test(color);

const svgOf = (picture) => {
  const root = svg("svg");
  const content = svg("g", {});
  const outlines = svg("g", {});
  root.append(svg("title", {}, numbersOf(picture).caption), content, outlines);
  const origin = picture.getBoundingClientRect();
  const extent = { right: 0, bottom: 0 };
  const margin = 16;
  const place = (rect) => ({ x: rect.left - origin.left + margin, y: rect.top - origin.top + margin });
  const grow = (rect) => {
    const { x, y } = place(rect);
    extent.right = Math.max(extent.right, x + rect.width);
    extent.bottom = Math.max(extent.bottom, y + rect.height);
  };
  const drawBox = (element, style) => {
    const rect = element.getBoundingClientRect();
    if (!rect.width || !rect.height) return;
    grow(rect);
    const { x, y } = place(rect);
    // A radius larger than half of the box gives round ends, not an ellipse.
    const radius = Math.min(parseFloat(style.borderTopLeftRadius) || 0, rect.width / 2, rect.height / 2);
    const box = { x, y, width: rect.width, height: rect.height, rx: radius };
    if (isVisible(style.backgroundColor)) {
      content.append(svg("rect", { ...box, fill: style.backgroundColor, "fill-opacity": style.opacity }));
    }
    const width = parseFloat(style.borderTopWidth);
    if (width && style.borderTopStyle !== "none" && isVisible(style.borderTopColor)) {
      const dashes = { dashed: `${2 * width} ${1.5 * width}`, dotted: `${width} ${width}` };
      const dash = dashes[style.borderTopStyle];
      const inner = { ...box, x: x + width / 2, y: y + width / 2, width: rect.width - width, height: rect.height - width };
      const line = { ...inner, fill: "none", stroke: style.borderTopColor, "stroke-width": width };
      if (style.borderTopStyle === "double") {
        content.append(svg("rect", { ...line, "stroke-width": width / 3, x, y, width: rect.width, height: rect.height }));
        line["stroke-width"] = width / 3;
      }
      content.append(svg("rect", dash ? { ...line, "stroke-dasharray": dash } : line));
    }
    const outline = parseFloat(style.outlineWidth);
    if (outline && style.outlineStyle !== "none" && element.matches(".pine-differs, .pine-chosen")) {
      // Outlines are around the box and above later elements, as on the page.
      const out = outline / 2 + (parseFloat(style.outlineOffset) || 0);
      const around = { ...box, x: x - out, y: y - out, width: rect.width + 2 * out, height: rect.height + 2 * out };
      outlines.append(svg("rect", { ...around, fill: "none", stroke: style.outlineColor, "stroke-width": outline }));
    }
  };

  const drawText = (node, style) => {
    const range = document.createRange();
    const size = parseFloat(style.fontSize);
    // One run per line, broken where the browser has broken the text.
    const runs = [];
    for (let index = 0; index < node.length; index++) {
      range.setStart(node, index);
      range.setEnd(node, index + 1);
      const rect = range.getClientRects()[0];
      if (!rect || (!rect.width && !rect.height)) continue;
      const last = runs.at(-1);
      if (last && Math.abs(last.rect.top - rect.top) < 2) last.text += node.data[index];
      else runs.push({ rect, text: node.data[index] });
    }
    for (const { rect, text } of runs) {
      if (!text.trim()) continue;
      const { x, y } = place(rect);
      const words = svg(
        "text",
        {
          x,
          y: y + rect.height / 2 + size * 0.35,
          fill: style.color,
          "font-family": style.fontFamily.replaceAll('"', "'"),
          "font-size": style.fontSize,
          "font-weight": style.fontWeight,
        },
        text.replace(/\s+/g, " "),
      );
      if (style.writingMode.startsWith("vertical")) {
        const middleX = x + rect.width / 2;
        // Rotated by 180 degrees, the text runs upwards.
        const isTurned = style.transform.startsWith("matrix(-1");
        words.setAttribute("x", isTurned ? -(y + rect.height) : y);
        words.setAttribute("y", (isTurned ? middleX : -middleX) + size * 0.35);
        words.setAttribute("transform", `rotate(${isTurned ? -90 : 90})`);
      }
      content.append(words);
    }
  };

  const copySvg = (element) => {
    const rect = element.getBoundingClientRect();
    grow(rect);
    const copy = element.cloneNode(true);
    const originals = [element, ...element.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((part, index) => {
      const style = getComputedStyle(originals[index]);
      for (const key of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight",
        "font-family", "text-anchor", "dominant-baseline"]) {
        part.style.setProperty(key, style.getPropertyValue(key));
      }
      part.removeAttribute("class");
    });
    const { x, y } = place(rect);
    for (const [key, value] of Object.entries({ x, y, width: rect.width, height: rect.height })) copy.setAttribute(key, value);
    content.append(copy);
  };

  const walk = (element) => {
    if (element.matches(INVISIBLE)) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return;
    if (element instanceof SVGElement) return copySvg(element);
    drawBox(element, style);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) drawText(child, style);
      else if (child instanceof Element) walk(child);
    }
  };

  for (const part of picture.querySelectorAll(":scope > .pine-figure-title, :scope > .pine-drawing, :scope > figcaption")) {
    walk(part);
  }
  const [width, height] = [Math.ceil(extent.right + margin), Math.ceil(extent.bottom + margin)];
  root.setAttribute("width", width);
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const surface = getComputedStyle(document.body).backgroundColor;
  content.before(svg("rect", { width, height, fill: isVisible(surface) ? surface : "#ffffff" }));
  return new XMLSerializer().serializeToString(root);
};

const pngOf = async (picture) => {
  const source = svgOf(picture);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();
  const scale = 2;
  const canvas = h("canvas", { width: image.width * scale, height: image.height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
};

// Export as HTML ------------------------------------------------------------------------------------

const pictureStyles = () => {
  const rules = [];
  for (const sheet of document.styleSheets) {
    let own;
    try {
      own = sheet.cssRules;
    } catch {
      continue; // sheet of another origin
    }
    for (const rule of own) if (/\.pine-|--pine-/.test(rule.cssText)) rules.push(rule.cssText);
  }
  return rules.join("\n");
};

const htmlOf = (picture) => {
  const copy = picture.cloneNode(true);
  copy.querySelectorAll(".pine-save").forEach((part) => part.remove());
  const table = copy.querySelector(".pine-numbers-table .pine-scroll");
  if (table) table.replaceChildren(tableOf(numbersOf(picture)));
  copy.querySelectorAll("[data-pick]").forEach((part) => part.removeAttribute("data-pick"));
  const title = h("title", { textContent: numbersOf(picture).caption });
  return (
    `<!doctype html>\n<html lang="en"><head><meta charset="utf-8">` +
    `<meta name="viewport" content="width=device-width, initial-scale=1">${title.outerHTML}` +
    `<style>body{margin:24px;background:var(--pine-surface);color:var(--pine-ink);font-family:system-ui,sans-serif}\n${pictureStyles()}</style></head>` +
    `<body class="${document.body.classList.contains("dark") ? "dark" : ""}">${copy.outerHTML}</body></html>\n`
  );
};

// Saving --------------------------------------------------------------------------------------------

const MAKERS = {
  png: async (picture) => [await pngOf(picture), "image/png"],
  svg: async (picture) => [svgOf(picture), "image/svg+xml"],
  html: async (picture) => [htmlOf(picture), "text/html"],
  csv: async (picture) => [csvOf(numbersOf(picture)), "text/csv"],
  json: async (picture) => [JSON.stringify(numbersOf(picture), null, 2) + "\n", "application/json"],
};

const save = async (picture, format) => {
  const [made, type] = await MAKERS[format](picture);
  const blob = made instanceof Blob ? made : new Blob([made], { type: `${type};charset=utf-8` });
  saveFile(blob, `${picture.dataset.name}.${format}`);
};
