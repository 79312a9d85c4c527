/* Sharing: what only the browser can do with a session that the server has written. */
(() => {
  "use strict";
  const PARAMETER = "session";
  const DRAFT = "pine-explorer-draft";
  const CODE = /^[\w-]+$/; // drafts of earlier versions are encrypted: they are no codes, and are not opened
  const KEPT = "A draft stays in this browser alone, and is there again after a reload.";
  const NOT_KEPT =
    "No draft is kept: this browser refuses to, as it may in a frame on another site, in a private window or for want " +
    "of room. “Copy link” and “Save session” keep what you typed.";
  const said = (text) => `<p class="page-caption" role="status">${text}</p>`;

  // Draft -----------------------------------------------------------------------------------------

  let isKept = true;

  /* What work makes of the browser's storage, "" where that is denied: then its very name throws. */
  const stored = (work) => {
    try {
      isKept = true;
      return work(localStorage) ?? "";
    } catch {
      isKept = false;
      return "";
    }
  };

  const draft = () => {
    const kept = stored((storage) => storage.getItem(DRAFT));
    return CODE.test(kept) ? kept : "";
  };

  const saidOfDraft = () => said(isKept ? KEPT : NOT_KEPT);

  const keep = (code) => {
    if (code) stored((storage) => storage.setItem(DRAFT, code));
    return [saidOfDraft()];
  };

  // Link ------------------------------------------------------------------------------------------

  const unlink = () => {
    const address = new URL(location.href);
    if (address.searchParams.has(PARAMETER)) address.searchParams.delete(PARAMETER);
    history.replaceState(history.state, "", address);
  };

  /* Whether a text is copied now. The newer way is closed to frames and to pages without https, the older one to Safari. */
  const isCopied = async (text) => {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    document.addEventListener("copy", give);
    try {
      if (!document.execCommand("copy")) await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    } finally {
      document.removeEventListener("copy", give);
    }
  };

  /* message: says why there is no code, if there is none. */
  const copy = async (code, message) => {
    if (!code) return ["", message];
    const link = new URL(location.pathname, location.origin);
    link.searchParams.set(PARAMETER, code);
    const done = (await isCopied(link.href)) ? "The link is copied." : "Copy the link from here.";
    return [link.href, said(`${done} It holds all that you typed.`)];
  };

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

  /* What the page is opened with, in place of the first input of its event. */
  const begin = (_draft, ...others) => [draft(), ...others];

  /* After a session was opened. Its link leaves the address, so that a reload brings what is typed from now on. */
  const opened = (again) => {
    unlink();
    if (again) document.getElementById("run").click();
    return [saidOfDraft()];
  };

  window.pineSharing = { begin, copy, keep, save, opened };
})();
