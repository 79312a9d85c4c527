/* Export of a picture as SVG: rectangles and text at the positions of the layout of the browser. */
import { svg } from "./common.js";

const INVISIBLE = ".visually-hidden, template, details, .pine-save";

const isVisible = (color) => color && color !== "transparent" && !/rgba\(.*, 0\)$/.test(color);

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
