/* Sharing: browser part of drafts, links and session files, which the server creates. */
(() => {
  "use strict";
  const PARAMETER = "session";
  const DRAFT = "pine-explorer-draft";
  const CODE = /^[\w-]+$/; // drafts of earlier versions are encrypted and do not match
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

  const draft = () => {
    const code = withStorage((storage) => storage.getItem(DRAFT));
    return CODE.test(code) ? code : "";
  };

  const draftCaption = () => caption(isStored ? STORED : NOT_STORED);

  /* Changes by the animation are not a draft, and would replace the saved one before it is restored. */
  const keep = (code) => {
    if (code && isUsed) withStorage((storage) => storage.setItem(DRAFT, code));
    return [draftCaption()];
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

  /* message: reason for an empty code. */
  const copy = async (code, message) => {
    if (!code) return ["", message];
    const link = new URL(location.pathname, location.origin);
    link.hash = `${PARAMETER}=${code}`;
    const done = (await isCopied(link.href)) ? "Link copied." : "Copy this link.";
    return [link.href, caption(`${done} It contains everything you typed.`)];
  };

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

  /* Return the inputs of the load event: link, draft and view. */
  const begin = (_linked, _draft, view) => [linked(), draft(), view];

  /* Remove the link of an opened session from the address, so that a reload restores the current draft. */
  const opened = (again) => {
    unlink();
    if (again) document.getElementById("shuffle").click();
    return [draftCaption()];
  };

  /* Check that the page opens with the host's example: without a link and without a draft. */
  const isFresh = () => !linked() && !draft();

  window.pineSharing = { begin, copy, keep, save, opened, isFresh };
})();
