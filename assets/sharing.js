/* The menus above the table; "Share" has links, cards and session files, which the server creates. */
import { closest, saveFile } from "../viz/drawing/common.js";
import * as cards from "./card.js";
import { caption } from "./drafts.js";

/* Copy a text. The newer API fails in frames and without https, the older one in Safari. */
const isCopied = async (text) => {
  let isSet = false;
  const setText = (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
    isSet = true;
  };
  document.addEventListener("copy", setText);
  try {
    if (!document.execCommand("copy") || !isSet) await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  } finally {
    document.removeEventListener("copy", setText);
  }
};

/* Return the inputs of the event that creates a link: address of the page, and the values of the page. */
export const here = (_address, ...values) => [location.origin + location.pathname, ...values];

let action = "copy"; // what the next link is for: "copy", "send", "card" or "video"

/* Open the share sheet of the system. A link that took too long is no longer of the click: then it is copied. */
const isSent = (url) => navigator.share({ url }).then(() => true, (error) => error.name === "AbortError");

/* Copy or send the link, or draw the card with its QR code. message: reason for a missing link. */
export const share = async (handed, message) => {
  if (!handed) return ["", message];
  const { link, note, qr } = JSON.parse(handed);
  if (action === "send" && (await isSent(link))) return [link, ""];
  if (cards[action]) return [link, caption(await cards[action]({ qr, status }))];
  const done = (await isCopied(link)) ? "Link copied." : "Copy this link.";
  return [link, caption(`${done} ${note}`)];
};

const status = (text) => {
  document.querySelector("#share-message .prose").innerHTML = caption(text);
};

document.addEventListener("click", ({ target }) => {
  const item = closest(target, ".page-menu button");
  if (!item) return;
  item.closest(".page-menu").hidePopover();
  if (!item.dataset.share) return;
  action = item.dataset.share;
  document.getElementById("share").click();
});

/* Place a menu below its button or above, and offer what the page has. */
const openMenu = ({ target, newState }) => {
  if (!target.matches(".page-menu") || newState !== "open") return;
  const { right, top, bottom } = document.querySelector(`[popovertarget=${target.id}]`).getBoundingClientRect();
  const { width, height } = target.getBoundingClientRect();
  target.style.left = `${Math.max(8, right - width)}px`;
  target.style.top = `${bottom + height < innerHeight ? bottom + 4 : Math.max(8, top - height - 4)}px`;
  for (const item of target.querySelectorAll("[data-share=send]")) item.hidden = !navigator.share;
  for (const item of target.querySelectorAll("[data-click-target]")) {
    const button = document.getElementById(item.dataset.clickTarget);
    item.hidden = !button;
    item.disabled = Boolean(button?.disabled);
    item.title = item.disabled ? "Run first: the answers on the page are not of a run of yours." : "";
  }
};
document.addEventListener("toggle", openMenu, true); // the event does not bubble

export const save = (json) => {
  if (json) saveFile(new Blob([json], { type: "application/json" }), "pine-explorer-session.json");
};
