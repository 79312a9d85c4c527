/* Texts of a plotly figure in another language. Fields that layout.meta.verbatim names, such as "ticktext", have texts of
   users and models, which stay as they are. */
const SHOWN = new Set([
  "text", "hovertext", "name", "label", "prefix", "hovertemplate", "ticktext", "customdata", "x", "y",
]);
const INTERNAL = new Set(["template", "meta", "args"]);
const TAG = /(<[^>]*>)/;
const VALUE = /%\{[^}]*\}/g;
const STAND_IN = /90(\d)09/g; // a number in place of a value, which the pairs of a language keep

/* Translate the parts of a text between tags; plotly inserts values such as %{x:.2f} later. */
const changed = (text, translate) => {
  const values = [];
  const standIn = (value) => `90${values.push(value) - 1}09`;
  const part = (words) => (/\p{L}{2}/u.test(words.replace(VALUE, "")) ? translate(words.replace(VALUE, standIn)) : words);
  const parts = text.split(TAG).map((words, at) => (at % 2 ? words : part(words)));
  return parts.join("").replace(STAND_IN, (_, place) => values[place]);
};

const inside = (value, key, change) => {
  if (typeof value === "string") return SHOWN.has(key) ? change(value) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((one) => inside(one, key, change));
  if (!value || typeof value !== "object" || value.bdata) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, change.keeps(name) ? one : inside(one, name, change)]));
};

/* Return a figure with its texts translated. */
export const translatedFigure = ({ data, layout, frames, ...others }, translate) => {
  const { caption = "", verbatim = [] } = layout.meta ?? {};
  const keeps = (name) => INTERNAL.has(name) || verbatim.includes(name);
  const change = Object.assign((text) => changed(text, translate), { keeps });
  const placed = inside({ data, layout, frames }, "", change);
  return { ...others, ...placed, layout: { ...placed.layout, meta: { ...layout.meta, caption: translate(caption) } } };
};
