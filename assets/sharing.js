/* Sharing: what only the browser can do with a session that the server has written. */
(() => {
  "use strict";
  const PARAMETER = "session";
  const said = (text) => `<p class="page-caption" role="status">${text}</p>`;

  /* message: says why there is no code, if there is none. */
  const copy = async (code, message) => {
    if (!code) return ["", message];
    const link = new URL(location.pathname, location.origin);
    link.searchParams.set(PARAMETER, code);
    try {
      await navigator.clipboard.writeText(link.href);
      return [link.href, said("The link is copied. It holds all that you typed.")];
    } catch {
      return [link.href, said("Copy the link from here. It holds all that you typed.")];
    }
  };

  const save = (json) => {
    if (!json) return;
    const anchor = document.createElement("a");
    anchor.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
    anchor.download = "pine-explorer-session.json";
    anchor.click();
    URL.revokeObjectURL(anchor.href);
  };

  /* After a session was opened. Its link leaves the address, so that a reload brings what is typed from now on. */
  const opened = (again) => {
    const address = new URL(location.href);
    if (address.searchParams.has(PARAMETER)) {
      address.searchParams.delete(PARAMETER);
      history.replaceState(history.state, "", address);
    }
    if (again) document.getElementById("run").click();
  };

  window.pineSharing = { copy, save, opened };
})();
