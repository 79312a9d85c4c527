/* Tabs of the page, opened by scripts. */
const TIMEOUT_MS = 3000;

/* Return what `find` finds within the timeout, else null. */
export const found = async (find) => {
  for (const until = Date.now() + TIMEOUT_MS; Date.now() < until; ) {
    const node = find();
    if (node) return node;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return null;
};

/* Open nested tabs one after the other, because the content of a tab is created after it is opened. */
export const open = async (...labels) => {
  for (const label of labels) {
    // The id of a tab is its label as written here; a translator replaces the text of the tab only.
    const tabs = () => [...document.querySelectorAll(`#tabs [role=tab][data-tab-id="${label}"]`)];
    const tab = await found(() => tabs().find((each) => each.checkVisibility()));
    if (tab?.getAttribute("aria-selected") === "false") tab.click();
    await found(() => !tab || tab.getAttribute("aria-selected") === "true");
  }
};
