/* The menu "Share": links, cards and session files, which the server creates. */
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

let action = "copy"; // what the next link is for: "copy", "card" or "video"

/* Copy the link, or draw the card with its QR code. message: reason for a missing link. */
export const share = async (handed, message) => {
  if (!handed) return ["", message];
  const { link, note, qr } = JSON.parse(handed);
  if (action !== "copy") return [link, caption(await cards[action]({ qr, status }))];
  const done = (await isCopied(link)) ? "Link copied." : "Copy this link.";
  return [link, caption(`${done} ${note}`)];
};

const menu = () => document.getElementById("share-menu");

const status = (text) => {
  document.querySelector("#share-message .prose").innerHTML = caption(text);
};

document.addEventListener("click", ({ target }) => {
  const item = closest(target, "#share-menu button");
  if (!item) return;
  menu().hidePopover();
  if (!item.dataset.share) return;
  action = item.dataset.share;
  document.getElementById("share").click();
});

/* Place the menu above its button, and offer what the page has. */
const openMenu = ({ target, newState }) => {
  if (target.id !== "share-menu" || newState !== "open") return;
  const { right, top, bottom } = document.querySelector("[popovertarget=share-menu]").getBoundingClientRect();
  const { width, height } = target.getBoundingClientRect();
  target.style.left = `${Math.max(8, right - width)}px`;
  target.style.top = `${bottom + height < innerHeight ? bottom + 4 : Math.max(8, top - height - 4)}px`;
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
