// Keys, theme and confirmations. Every page works without this file, but for streams.
"use strict";

const PAGES = { o: "/", t: "/topics", g: "/groups", m: "/messages", d: "/dead-letters", b: "/brokers", a: "/access", j: "/jobs", l: "/balance", u: "/audit" };
let waitsForPage = false;

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (waitsForPage) {
    waitsForPage = false;
    if (event.key in PAGES) location.assign(PAGES[event.key]);
    return;
  }
  if (event.key === "g") {
    waitsForPage = true;
    setTimeout(() => { waitsForPage = false; }, 1500);
  } else if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (event.key === "?") {
    document.getElementById("keys").showModal();
  }
});

// On a telephone the menu is wider than the window: the page that is open is in sight.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

const theme = document.getElementById("theme");
if (theme) {
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use the ${isDark() ? "light" : "dark"} theme`); };
  theme.hidden = false;
  label();
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* only this page, then */ }
    label();
  });
}

// A box in the head of a table that ticks all boxes of a name below it.
const boxesOf = (all) => [...all.form.querySelectorAll(`input[name="${all.dataset.choose}"]:not(:disabled)`)];
document.addEventListener("change", (event) => {
  const all = event.target;
  if (all.dataset?.choose !== undefined) boxesOf(all).forEach((box) => { box.checked = all.checked; });
});

// The button of a deletion is enabled once the name was typed beside it.
function enableConfirmed(field) {
  const button = field.form?.querySelector("button[data-confirmed]");
  if (button) button.disabled = field.value !== field.dataset.confirm;
}
document.addEventListener("input", (event) => {
  if (event.target.dataset?.confirm !== undefined) enableConfirmed(event.target);
});

// What pages have for those without this script; a refresh brings it back.
function adapt() {
  document.querySelectorAll("input[data-choose]").forEach((all) => { all.hidden = boxesOf(all).length < 2; });
  document.querySelectorAll("input[data-confirm]").forEach(enableConfirmed);
}
adapt();
document.addEventListener("dashboard:refreshed", adapt);
