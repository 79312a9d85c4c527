/* A page behind a path prefix that its server does not know sends each call to a wrong address: say so. */
(() => {
  "use strict";
  const pathOf = (address) => new URL(address, location.href).pathname.replace(/\/+$/, "") || "/";
  const [here, root] = [location.href, window.gradio_config?.root ?? location.href].map(pathOf);
  if (here === root) return;
  const message = document.createElement("p");
  message.id = "root-path";
  message.setAttribute("role", "alert");
  message.textContent =
    `This page cannot reach its server: the path of the page is ${here}, the server expects ${root}. ` +
    `Start the server with PINE_ROOT_PATH=${here}.`;
  document.body.prepend(message);
})();
