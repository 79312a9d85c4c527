/* HTML pictures: selection, preview, keyboard navigation, table of numbers, and export.

   Events are delegated from the document, so that pictures that are added later need no setup. The page and every
   exported page use this file. Attributes that viz/ renders:
   data-pick      JSON of the selection by click, Enter or space bar
   data-readout   sentence in the preview line of the picture while the element is hovered or focused; default: its title
   data-save      format of an export button
   <details> of class pine-more, with an id, stay open or closed when their picture is drawn again. */
import { closest, documentHtml, h, saveFile, textBlob } from "./common.js";
import { svgOf } from "./picture_svg.js";

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
  body.translate = false; // cells have texts of users and models
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

/* Return the makers of files of numbers. numbersOf: function that returns those of what is saved. */
export const numberFiles = (numbersOf) => ({
  csv: (saved) => textBlob(csvOf(numbersOf(saved)), "text/csv"),
  json: (saved) => textBlob(`${JSON.stringify(numbersOf(saved), null, 2)}\n`, "application/json"),
});

// Export as an image

const sourceOf = (picture) => svgOf(picture, numbersOf(picture).caption);

const pngOf = async (picture) => {
  const source = sourceOf(picture);
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
  const body = "body{margin:24px;background:var(--pine-surface);color:var(--pine-ink);font-family:system-ui,sans-serif}";
  return documentHtml({
    title: numbersOf(picture).caption,
    styles: `${body}\n${pictureStyles()}`,
    body: copy.outerHTML,
    className: document.body.classList.contains("dark") ? "dark" : "",
  });
};

// Saving --------------------------------------------------------------------------------------------

const MAKERS = {
  png: pngOf,
  svg: (picture) => textBlob(sourceOf(picture), "image/svg+xml"),
  html: (picture) => textBlob(htmlOf(picture), "text/html"),
  ...numberFiles(numbersOf),
};

const save = async (picture, format) => {
  saveFile(await MAKERS[format](picture), `${picture.dataset.name}.${format}`);
};
