/* Events that gradio would lose. It ends its stream of answers when none is awaited. An event that is asked for in that
   moment is taken by the server, but its answer waits until the next event opens a stream, perhaps for ever. Where that
   has happened, the next event is made here: a hidden button is pressed that does nothing else. */
(() => {
  "use strict";
  const COMPLETED = /"msg":"process_completed","event_id":"([^"]+)"/g;
  const SPLIT = 120; // characters: COMPLETED may begin in one chunk and end in the next
  const AWHILE_MS = 300; // in which gradio opens a stream by itself, if it does
  const MOST_TRIES = 3; // a restarted server never answers

  const awaited = new Map(); // events without an answer, each with how often a stream was opened for it
  const early = new Set(); // events that were answered before the browser knew their name
  let streams = 0;

  const look = () => {
    if (streams) return;
    for (const [event, tries] of awaited) {
      if (tries < MOST_TRIES) awaited.set(event, tries + 1);
      else awaited.delete(event);
    }
    if (awaited.size) document.getElementById("open-stream")?.click();
  };

  const answered = (event) => {
    if (!awaited.delete(event)) early.add(event);
  };

  const asked = ({ event_id: event }) => {
    if (event && !early.delete(event)) awaited.set(event, 0);
    setTimeout(look, AWHILE_MS);
  };

  const watched = (response, signal) => {
    const decoder = new TextDecoder();
    let end = "";
    const read = (chunk, controller) => {
      controller.enqueue(chunk);
      const text = end + decoder.decode(chunk, { stream: true });
      for (const [, event] of text.matchAll(COMPLETED)) answered(event);
      end = text.slice(-SPLIT).replace(COMPLETED, "");
    };
    const closed = () => {
      streams -= 1;
      setTimeout(look, AWHILE_MS);
    };
    streams += 1;
    signal.addEventListener("abort", closed, { once: true });
    return new Response(response.body.pipeThrough(new TransformStream({ transform: read })), response);
  };

  const request = window.fetch;
  window.fetch = async (input, options) => {
    const address = input.url ?? String(input);
    const response = await request(input, options);
    if (response.ok && address.includes("/queue/join")) response.clone().json().then(asked);
    if (response.ok && address.includes("/queue/data?")) return watched(response, input.signal);
    return response;
  };
})();
