// Refresh: the newest numbers into the page that is open, at intervals.
//
// A hidden tab asks for nothing. Forms that somebody fills in, open details, the selection and the
// scroll position stay as they are. While there is no answer the page stays, and says so.
"use strict";
(() => {
  const TIMEOUT_MS = 20000;
  const content = document.getElementById("content");
  const interval = Number(content.dataset.refresh) * 1000;
  const state = document.getElementById("refresh");
  let address = location.pathname + location.search;
  let newest = new Date();
  let timer = null;
  let isAsking = false;
  if (!interval) return;

  const isChanged = (field) => (field.type === "checkbox" || field.type === "radio"
    ? field.checked !== field.defaultChecked
    : field.options ? field.selectedIndex !== Math.max([...field.options].findIndex((one) => one.defaultSelected), 0)
      : field.tagName !== "BUTTON" && field.value !== field.defaultValue);
  const isInUse = (form) => form.contains(document.activeElement)
    || [...form.elements].some((field) => field.type !== "hidden" && field.willValidate && isChanged(field));
  // Also the rows around such a form, or around a question before a deletion: another row would take its place.
  const isKept = (node) => (node.tagName === "FORM" && isInUse(node)) || (node.tagName === "TABLE"
    && (node.querySelector("details.confirm[open]") !== null || [...node.querySelectorAll("form")].some(isInUse)));
  const hasSelection = () => {
    const selection = getSelection();
    return !selection.isCollapsed && content.contains(selection.anchorNode);
  };

  const since = () => newest.toISOString().slice(11, 19);

  function say(text) {
    state.hidden = !text;
    if (state.textContent !== text) state.textContent = text;
  }

  async function newestPage() {
    const response = await fetch(address, {
      headers: { accept: "text/html", "x-refresh": "1" }, signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    // The login has ended, or the page has moved: the browser shows where.
    if (response.redirected) location.reload();
    return response;
  }

  async function refresh() {
    if (document.hidden || isAsking) return;
    if (hasSelection()) {
      say(`Not refreshed while text is selected; what you see is of ${since()} UTC.`);
      return;
    }
    isAsking = true;
    const asked = address;
    try {
      const response = await newestPage();
      const text = await response.text();
      const isPage = response.ok || [400, 403, 404].includes(response.status);
      if (!isPage) {
        say(`The cluster does not answer; what you see is of ${since()} UTC.`);
      } else if (!response.redirected && asked === address && !hasSelection()) {
        await htmx.swap({ sourceElement: content, target: content, text, select: "#content", swap: "outerMorph" });
        newest = new Date();
        say("");
        document.dispatchEvent(new CustomEvent("dashboard:refreshed"));
      }
    } catch {
      say(`No connection to the dashboard; what you see is of ${since()} UTC. Trying again …`);
    } finally {
      isAsking = false;
    }
  }

  htmx.registerExtension("refresh", {
    htmx_before_morph_node: (node) => !isKept(node),
    htmx_before_morph_attr: (node, { attrName }) => !(node.tagName === "DETAILS" && attrName === "open"),
  });
  // A search changes the list without a new page: the address follows it, and so do refreshes.
  document.addEventListener("htmx:after:request", (event) => {
    const form = event.target.closest?.("form[role=search]");
    if (!form) return;
    address = `${form.getAttribute("action") ?? location.pathname}?${new URLSearchParams(new FormData(form))}`;
    history.replaceState(null, "", address);
  });

  const start = () => { timer ??= setInterval(refresh, interval); };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearInterval(timer); timer = null; return; }
    start();
    if (Date.now() - newest >= interval) refresh();
  });
  addEventListener("pagehide", () => { clearInterval(timer); timer = null; });
  addEventListener("pageshow", start);
  addEventListener("online", refresh);
  start();
})();
