// Live tail: rows of a stream into a table, as text. Bounded: old rows leave.
"use strict";
(() => {
  const ROWS_MAX = 300;
  const root = document.getElementById("tail");
  if (!root) return;
  const rows = document.getElementById("tail-rows");
  const counts = document.getElementById("tail-counts");
  const problem = document.getElementById("tail-problem");
  const pause = document.getElementById("tail-pause");
  const number = new Intl.NumberFormat("en-US");
  const said = document.getElementById("tail-said");
  const SAY_MS = 10000;
  let saidAt = 0;
  let source = null;

  // What screen readers say: at once when the state changes, and counts now and then.
  function state(text, isCount) {
    counts.textContent = text;
    const now = performance.now();
    if (isCount && now - saidAt < SAY_MS) return;
    saidAt = now;
    said.textContent = text;
  }

  function cell(text, name) {
    const made = document.createElement("td");
    if (name) made.className = name;
    made.textContent = text;
    return made;
  }

  function rowOf(message) {
    const made = document.createElement("tr");
    const link = document.createElement("a");
    link.href = message.address;
    link.textContent = new Date(message.stored_ms).toISOString().slice(0, 19).replace("T", " ");
    const time = cell("", "time");
    time.append(link);
    const body = cell(message.preview, "long mono body");
    made.append(time, cell(`${message.broker}:${message.queue}`, "time"), cell(number.format(message.offset), "n"),
      cell(message.tag ?? ""), cell(message.keys, "long"), body);
    if (message.is_masked) {
      const mark = document.createElement("span");
      mark.className = "tag warn";
      mark.textContent = "masked";
      body.append(" ", mark);
    }
    return made;
  }

  function show(update) {
    const fresh = document.createDocumentFragment();
    for (const message of update.rows.reverse()) fresh.append(rowOf(message));
    rows.prepend(fresh);
    while (rows.childElementCount > ROWS_MAX) rows.lastElementChild.remove();
    const left = update.matched - update.shown + update.jumped;
    state(`${number.format(update.matched)} messages, ${number.format(update.shown)} shown`
      + (left > 0 ? `, ${number.format(left)} too many to show` : ""), true);
    say(update.problem);
  }

  function say(text) {
    problem.textContent = text;
    problem.hidden = !text;
  }

  function open() {
    source = new EventSource(root.dataset.stream);
    source.addEventListener("tail", (event) => show(JSON.parse(event.data)));
    source.addEventListener("problem", (event) => { say(JSON.parse(event.data)); close(); state("ended", false); });
    source.onopen = () => { state("waiting for messages", false); };
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) { say("the stream has ended: reload the page"); state("ended", false); }
      else if (source) state("connecting again …", false);
    };
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  pause.addEventListener("click", () => {
    const isPaused = source !== null;
    if (isPaused) close(); else open();
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    state(isPaused ? "paused; messages of the pause are not shown" : "connecting …", false);
  });
  document.getElementById("tail-clear").addEventListener("click", () => rows.replaceChildren());
  addEventListener("pagehide", close);
  open();
})();
