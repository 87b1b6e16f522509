// Loaded before the page is drawn, so that the chosen theme does not flicker.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that stores nothing follows the system */ }
