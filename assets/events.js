/* Workaround for lost updates of events. gradio closes its stream when no event is pending. The server accepts an event
   sent at that moment, but its updates are not delivered until another event opens a stream. In this case, a hidden
   button is clicked whose event has no other effect. */

const COMPLETED = /"msg":"process_completed","event_id":"([^"]+)"/g;
const SPLIT = 120; // characters: COMPLETED may begin in one chunk and end in the next
const OPENING_MS = 300; // time in which gradio may open a stream
const MAX_TRIES = 3; // a restarted server does not know the event

const pending = new Map(); // pending events with the number of streams opened for each
const early = new Set(); // events completed before the response with their id
let streams = 0;

const openStream = () => {
  if (streams) return;
  for (const [event, tries] of pending) {
    if (tries < MAX_TRIES) pending.set(event, tries + 1);
    else pending.delete(event);
  }
  if (pending.size) document.getElementById("open-stream")?.click();
};

const markCompleted = (event) => {
  if (!pending.delete(event)) early.add(event);
};

const addPending = ({ event_id: event }) => {
  if (event && !early.delete(event)) pending.set(event, 0);
  setTimeout(openStream, OPENING_MS);
};

const watchStream = (response, signal) => {
  const decoder = new TextDecoder();
  let end = "";
  const read = (chunk, controller) => {
    controller.enqueue(chunk);
    const text = end + decoder.decode(chunk, { stream: true });
    for (const [, event] of text.matchAll(COMPLETED)) markCompleted(event);
    end = text.slice(-SPLIT).replace(COMPLETED, "");
  };
  const closed = () => {
    streams -= 1;
    setTimeout(openStream, OPENING_MS);
  };
  streams += 1;
  signal.addEventListener("abort", closed, { once: true });
  return new Response(response.body.pipeThrough(new TransformStream({ transform: read })), response);
};

const request = window.fetch;
window.fetch = async (input, options) => {
  const address = input.url ?? String(input);
  const response = await request(input, options);
  if (response.ok && address.includes("/queue/join")) response.clone().json().then(addPending);
  if (response.ok && address.includes("/queue/data?")) return watchStream(response, input.signal);
  return response;
};
