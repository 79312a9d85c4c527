/* The last slide of a presentation: the finding, an invitation, and the QR code of a short link to the experiment.
   viz/page/short_links.py keeps the link. */
import { svg } from "../viz/drawing/common.js";
import { currentTable } from "./order_table.js";

export const QUIET = 4; // modules around a code
const MIN_MODULE_PX = 4; // of a code that a phone reads from a screen
const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])$/;

const section = () => document.querySelector(".page-last-slide");
const part = (selector) => section().querySelector(selector);

/* Return the pixels of a module of a QR code with these rows in a square, 0 if there is no room for it. */
export const moduleOf = (rows, side) => {
  const module = Math.floor(side / (rows.length + 2 * QUIET));
  return rows.length && module >= MIN_MODULE_PX ? module : 0;
};

const drawCode = (rows) => {
  const place = part("[data-qr]");
  const zoom = Number(document.body.style.getPropertyValue("--page-zoom"));
  const side = rows.length + 2 * QUIET;
  const size = (side * moduleOf(rows, place.clientWidth * zoom)) / zoom;
  if (!size) return;
  const dark = rows.flatMap((row, top) =>
    [...row].map((cell, left) => (cell === "1" ? `M${left + QUIET},${top + QUIET}h1v1h-1z` : "")),
  );
  const frame = { viewBox: `0 0 ${side} ${side}`, width: size, height: size, role: "img", "aria-label": "QR code of the link" };
  const ground = svg("rect", { width: side, height: side, fill: "#fff" });
  place.append(svg("svg", { ...frame, "shape-rendering": "crispEdges" }, ground, svg("path", { d: dark.join("") })));
};

const clear = (note) => {
  part("[data-link]").textContent = "";
  part("[data-note]").textContent = note;
  part("[data-qr]").replaceChildren();
};

/* Show the link of the server, or why there is none. */
export const receive = (handed) => {
  const { link = "", qr = [], note } = JSON.parse(handed);
  clear(link && LOCAL.test(location.hostname) ? "This address works on this computer only." : note);
  part("[data-link]").textContent = link;
  drawCode(qr);
};

export const show = () => {
  const { state } = currentTable();
  part("p").textContent = state.question;
  part("h2").textContent = state.headline;
  clear("Creating the link…");
  section().hidden = false;
  document.body.classList.add("pine-ending");
  document.getElementById("short-link").click();
};

export const hide = () => {
  if (section()) section().hidden = true;
  document.body.classList.remove("pine-ending");
};
