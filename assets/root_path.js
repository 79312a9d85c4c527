/* A page behind a path prefix that its server does not know sends each call to a wrong address: say so. */
import { h } from "../viz/drawing/common.js";

const pathOf = (address) => new URL(address, location.href).pathname.replace(/\/+$/, "") || "/";
const [here, root] = [location.href, window.gradio_config?.root ?? location.href].map(pathOf);
if (here !== root) {
  const textContent =
    `This page cannot reach its server: the path of the page is ${here}, the server expects ${root}. ` +
    `Start the server with PINE_ROOT_PATH=${here}.`;
  document.body.prepend(h("p", { id: "root-path", role: "alert", textContent }));
}
