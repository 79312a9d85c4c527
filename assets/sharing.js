/* Sharing: browser part of drafts, links and session files, which the server creates. */
(() => {
  "use strict";
  const PARAMETER = "session";
  const DRAFT = "pine-explorer-draft";
  const TYPED = ["question", "instruction", "accepted"]; // fields of texts
  const ANSWER_MS = 1000; // in which gradio answers a click, if it is connected
  const RUN_KEY = "pine-explorer-run-key";
  const STORED = "Your draft is saved in this browser only.";
  const NOT_STORED =
    "Drafts cannot be saved in this browser (embedded frame, private window or full storage). Use “Copy link” or " +
    "“Save session”.";
  const caption = (text) => `<p class="page-caption" role="status">${text}</p>`;

  // Draft -----------------------------------------------------------------------------------------

  let isStored = true;

  /* Return the result of `work` on the local storage, "" if access is denied: then reading `localStorage` throws. */
  const withStorage = (work) => {
    try {
      isStored = true;
      return work(localStorage) ?? "";
    } catch {
      isStored = false;
      return "";
    }
  };

  /* Return the draft as JSON; those of earlier versions are in another format. */
  const draft = () => {
    const json = withStorage((storage) => storage.getItem(DRAFT));
    return json.startsWith("{") ? json : "";
  };

  const draftCaption = () => caption(isStored ? STORED : NOT_STORED);

  let form = null; // last values of the form, as a session
  let waiting = null; // timer until the values are read from the fields

  /* Changes by the animation are not a draft, and would replace the saved one before it is restored. */
  const store = () => {
    if (isUsed) withStorage((storage) => storage.setItem(DRAFT, JSON.stringify(form)));
  };

  const keep = (accepted, task, question, instruction, methods, max_new_tokens, documents, chat_template_kwargs) => {
    clearTimeout(waiting);
    const texts = { accepted, task, question, instruction, chat_template_kwargs: chat_template_kwargs.trim() };
    form = { ...texts, methods, max_new_tokens, documents: JSON.parse(documents) };
    store();
    return [draftCaption()];
  };

  /* Keep typed texts without a connection, where gradio sends no events, and those of a page that is left. */
  const keepTyped = () => {
    const valueOf = (selector, within = document) => within.querySelector(selector)?.value;
    const cards = [...document.querySelectorAll("#documents ol > .page-card")];
    const typed = {
      ...Object.fromEntries(TYPED.map((name) => [name, valueOf(`#${name} :is(textarea, input)`) ?? form[name]])),
      documents: cards.map((card) => ({
        letter: Number(card.querySelector(".page-badge").dataset.letter),
        title: valueOf(".page-title", card),
        text: valueOf(".page-text", card),
      })),
    };
    const length = Number(valueOf("#length input[type=number]")) || form.max_new_tokens;
    form = { ...form, ...typed, max_new_tokens: length };
    store();
  };
  window.addEventListener("pagehide", () => form && keepTyped());

  document.addEventListener("click", ({ target }) => {
    if (target.id === "keep-draft" && form) waiting = setTimeout(keepTyped, ANSWER_MS);
  });

  /* Return the secret key by which a reload of this tab finds its run; "" without storage. */
  const runKey = () => {
    const digits = (byte) => byte.toString(16).padStart(2, "0");
    try {
      const key = sessionStorage.getItem(RUN_KEY) ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), digits).join("");
      sessionStorage.setItem(RUN_KEY, key);
      return key;
    } catch {
      return "";
    }
  };

  // Link ------------------------------------------------------------------------------------------

  const fragment = () => new URLSearchParams(location.hash.slice(1));

  /* Return the code in the address: after #, which is not sent to servers, or in the query of older links. */
  const linked = () => fragment().get(PARAMETER) ?? new URLSearchParams(location.search).get(PARAMETER) ?? "";

  const unlink = () => {
    const address = new URL(location.href);
    if (address.searchParams.has(PARAMETER)) address.searchParams.delete(PARAMETER);
    if (fragment().has(PARAMETER)) address.hash = "";
    history.replaceState(history.state, "", address);
  };

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
  const here = (_address, ...values) => [location.origin + location.pathname, ...values];

  let action = "copy"; // what the next link is for: "copy", "card" or "video"

  /* Copy the link, or draw the card with its QR code. message: reason for a missing link. */
  const share = async (handed, message) => {
    if (!handed) return ["", message];
    const { link, note, qr } = JSON.parse(handed);
    if (action !== "copy") return [link, caption(await window.pineCard[action]({ qr, status }))];
    const done = (await isCopied(link)) ? "Link copied." : "Copy this link.";
    return [link, caption(`${done} ${note}`)];
  };

  // The menu --------------------------------------------------------------------------------------

  const menu = () => document.getElementById("share-menu");

  const status = (text) => {
    document.querySelector("#share-message .prose").innerHTML = caption(text);
  };

  document.addEventListener("click", ({ target }) => {
    const item = target instanceof Element ? target.closest("#share-menu button") : null;
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
    }
  };
  document.addEventListener("toggle", openMenu, true); // the event does not bubble

  let isUsed = false; // the user has clicked or typed
  const used = (event) => (isUsed ||= event.isTrusted);
  for (const kind of ["click", "input", "keydown"]) document.addEventListener(kind, used, { capture: true });

  // A link that is pasted into an open tab only changes the address. Confirm before the input is replaced.
  window.addEventListener("hashchange", () => {
    if (!fragment().has(PARAMETER)) return;
    if (!isUsed || confirm("Open this link? It replaces your current input.")) location.reload();
    else unlink();
  });

  // File ------------------------------------------------------------------------------------------

  const save = (json) => {
    if (!json) return;
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
    anchor.download = "pine-explorer-session.json";
    anchor.click();
    URL.revokeObjectURL(anchor.href);
  };

  // Opening ---------------------------------------------------------------------------------------

  /* Return the inputs of the load event: link, draft, key of the run and view. */
  const begin = (_linked, _draft, _key, view) => [linked(), draft(), runKey(), view];

  /* Remove the link of an opened session from the address, so that a reload restores the current draft. */
  const opened = (resumes) => {
    unlink();
    // After gradio has applied the values of the session.
    setTimeout(() => document.getElementById("keep-draft").click(), 2 * ANSWER_MS);
    if (resumes) document.getElementById("resume-run").click();
    return [draftCaption()];
  };

  /* Check that the page opens with the host's example: without a link and without a draft. */
  const isFresh = () => !linked() && !draft();

  window.pineSharing = { begin, here, keep, save, share, opened, isFresh };
})();
