/* The first rows of an uploaded dataset, with a list of fields above each column. The server reads the file again after
   a choice. */
import { h } from "../viz/drawing/common.js";

/* Return the columns with a field chosen for one of them; another column loses it. */
export const chooseField = (columns, place, field) =>
  columns.map((column, other) => {
    if (other === place) return { ...column, field };
    return field && column.field === field ? { ...column, field: "" } : column;
  });

export const mount = ({ element, trigger, props, watch }) => {
  let columns = [];

  const choose = (place, field) => {
    columns = chooseField(columns, place, field);
    for (const [other, list] of [...element.querySelectorAll("select")].entries()) list.value = columns[other].field;
    props.value = JSON.stringify({ ...JSON.parse(props.value), columns });
    trigger("input");
  };

  const list = ({ name, field }, place, fields) => {
    const options = fields.map((value) => h("option", { value, textContent: value || "not used", translate: !value }));
    const select = h("select", { "aria-label": `Field of the column ${name}` }, ...options);
    select.value = field;
    select.addEventListener("change", () => choose(place, select.value));
    return h("th", { scope: "col" }, h("span", { textContent: name, translate: false }), select);
  };

  const draw = () => {
    const content = JSON.parse(props.value || "{}");
    const isDrawn = element.querySelector("table") && JSON.stringify(content.columns) === JSON.stringify(columns);
    if (isDrawn) return;
    columns = content.columns ?? [];
    if (!columns.length) return element.replaceChildren();
    const rows = content.rows.map((cells) => h("tr", {}, ...cells.map((textContent) => h("td", { textContent }))));
    const heads = columns.map((column, place) => list(column, place, content.fields));
    const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", { translate: false }, ...rows));
    const region = { role: "region", tabIndex: 0, className: "pine-scroll page-columns", "aria-label": "First rows" };
    element.replaceChildren(h("div", region, table));
  };
  watch("value", draw);
  draw();
};
