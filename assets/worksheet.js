/* The worksheet of the tutorial as a Markdown file, and on paper. Its links have the address of this page. */
import { closest, documentHtml, h, saveFile, textBlob } from "../viz/drawing/common.js";

const MARKS = { H3: "# ", H4: "## ", LI: "- " };
const STYLES =
  "body { max-width: 44em; margin: 2em auto; font: 12pt/1.4 system-ui, sans-serif } h4 { margin-bottom: 0 } " +
  "section > p:last-of-type, h4 ~ p { break-inside: avoid } hr { margin: 2.2em 0; border: 0; border-bottom: 1px solid #999 }";

/* Return the text of headings, paragraphs and list items in Markdown. lines: name of the element, text and address of its link. */
export const markdownOf = (lines) => {
  const texts = lines.map(({ name, text, link }) => (MARKS[name] ?? "") + (link ? `[${text}](${link})` : text));
  return texts.reduce((all, text, place) => {
    const isList = place > 0 && [place - 1, place].every((one) => lines[one].name === "LI");
    return `${all}${place ? (isList ? "\n" : "\n\n") : ""}${text}`;
  }, "").concat("\n");
};

const save = (section) => {
  const lines = [...section.querySelectorAll("h3, h4, p, li")].map((one) => ({
    name: one.tagName,
    text: one.textContent.trim(),
    link: one.querySelector("a")?.href,
  }));
  saveFile(textBlob(markdownOf(lines), "text/markdown"), "pine-worksheet.md");
};

/* Print from a frame, which has nothing but the worksheet; addresses are written out, and two lines are left for each answer. */
const print = (section) => {
  const paper = section.cloneNode(true);
  for (const link of paper.querySelectorAll("a")) link.textContent = link.href;
  for (const list of paper.querySelectorAll("ul")) list.nextElementSibling.after(h("hr"), h("hr"));
  const srcdoc = documentHtml({ title: document.title, styles: STYLES, body: paper.outerHTML });
  const frame = h("iframe", { srcdoc, hidden: true });
  frame.addEventListener("load", () => {
    frame.contentWindow.addEventListener("afterprint", () => frame.remove());
    frame.contentWindow.print();
  });
  document.body.append(frame);
};

document.addEventListener("click", ({ target }) => {
  const button = closest(target, "[data-worksheet]");
  if (!button) return;
  const section = document.querySelector(".page-worksheet");
  if (button.dataset.worksheet === "save") save(section);
  else print(section);
});
