/* Export of a picture as SVG: rectangles and text at the positions of the layout of the browser. */
import { svg } from "./common.js";

const INVISIBLE = ".visually-hidden, template, details, .pine-save";

const isVisible = (color) => color && color !== "transparent" && !/rgba\(.*, 0\)$/.test(color);

const spread = ({ x, y, width, height, ...box }, by) =>
  ({ ...box, x: x - by, y: y - by, width: width + 2 * by, height: height + 2 * by });

/* Return the source of the SVG of a picture, whose title is its caption. */
export const svgOf = (picture, caption) => {
  const root = svg("svg");
  const content = svg("g", {});
  const outlines = svg("g", {});
  root.append(svg("title", {}, caption), content, outlines);
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
      const line = { ...spread(box, -width / 2), fill: "none", stroke: style.borderTopColor, "stroke-width": width };
      if (style.borderTopStyle === "double") {
        line["stroke-width"] = width / 3;
        content.append(svg("rect", { ...line, ...box }));
      }
      content.append(svg("rect", dash ? { ...line, "stroke-dasharray": dash } : line));
    }
    const outline = parseFloat(style.outlineWidth);
    if (outline && style.outlineStyle !== "none" && element.matches(".pine-differs, .pine-chosen")) {
      // Outlines are around the box and above later elements, as on the page.
      const around = spread(box, outline / 2 + (parseFloat(style.outlineOffset) || 0));
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
      const font = { "font-family": style.fontFamily.replaceAll('"', "'"), "font-weight": style.fontWeight };
      const at = { x, y: y + rect.height / 2 + size * 0.35, fill: style.color, "font-size": style.fontSize };
      content.append(svg("text", { ...at, ...font }, text.replace(/\s+/g, " ")));
    }
  };

  const walk = (element) => {
    if (element.matches(INVISIBLE)) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return;
    drawBox(element, style);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) drawText(child, style);
      else if (child instanceof Element) walk(child);
    }
  };

  picture.querySelectorAll(":scope > .pine-drawing, :scope > figcaption").forEach(walk);
  const [width, height] = [Math.ceil(extent.right + margin), Math.ceil(extent.bottom + margin)];
  root.setAttribute("width", width);
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const surface = getComputedStyle(document.body).backgroundColor;
  content.before(svg("rect", { width, height, fill: isVisible(surface) ? surface : "#ffffff" }));
  return new XMLSerializer().serializeToString(root);
};
