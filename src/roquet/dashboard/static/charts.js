// Charts: the values under the pointer, by mouse, touch and arrow keys.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const TOP = 7; // as facts/charts.py has it
  const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  let shown = null; // the plot, and the seconds of the sample that it shows

  const text = (value, unit) => {
    if (value === null) return "not known";
    if (unit !== "rate") return number.format(value);
    return value > 0 && value < 10 ? `${value.toFixed(1)}/s` : `${number.format(value)}/s`;
  };

  const pointsOf = (plot) => JSON.parse(plot.dataset.points);

  function nearest(points, seconds) {
    let best = 0;
    points.forEach((point, n) => {
      if (Math.abs(point[0] - seconds) < Math.abs(points[best][0] - seconds)) best = n;
    });
    return best;
  }

  function add(plot, name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.classList.add("cursor");
    plot.append(made);
    return made;
  }

  function clear() {
    if (!shown) return;
    shown.plot.querySelectorAll(".cursor").forEach((part) => part.remove());
    shown.plot.closest("figure").querySelector("output").textContent = "";
    shown = null;
  }

  function show(plot, index) {
    clear();
    const points = pointsOf(plot);
    const [seconds, ...values] = points[index];
    const { unit, top, height, start, names } = plot.dataset;
    const x = `${100 * seconds / (points.at(-1)[0] || 1)}%`;
    add(plot, "line", { x1: x, x2: x, y1: TOP, y2: TOP + Number(height) });
    values.forEach((value, n) => {
      if (value !== null) add(plot, "circle", { cx: x, cy: TOP + height * (1 - value / top), r: 3.5 }).classList.add(`c${n}`);
    });
    const time = new Date(Number(start) + seconds * 1000).toISOString().slice(11, 19);
    const named = names.split("|").map((name, n) => (values.length > 1 ? `${name} ` : "") + text(values[n], unit));
    plot.closest("figure").querySelector("output").textContent = `${time} UTC: ${named.join(", ")}`;
    shown = { plot, seconds, start: Number(start), isNewest: index === points.length - 1 };
  }

  const plotOf = (event) => event.target.closest?.("svg.plot[data-points]");

  function point(event) {
    const plot = plotOf(event);
    if (!plot) {
      if (event.type === "pointerdown" || document.activeElement !== shown?.plot) clear();
      return;
    }
    const box = plot.getBoundingClientRect();
    const points = pointsOf(plot);
    show(plot, nearest(points, points.at(-1)[0] * (event.clientX - box.left) / box.width));
  }
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);

  document.addEventListener("keydown", (event) => {
    const plot = plotOf(event);
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const points = pointsOf(plot);
    const last = points.length - 1;
    const now = shown?.plot === plot ? nearest(points, shown.seconds) : last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 30, PageDown: now + 30, Home: 0, End: last }[event.key];
    if (event.key === "Escape") clear();
    if (next === undefined) return;
    event.preventDefault();
    show(plot, Math.min(Math.max(next, 0), last));
  });
  document.addEventListener("focusin", (event) => {
    const plot = plotOf(event);
    if (plot?.matches(":focus-visible")) show(plot, pointsOf(plot).length - 1);
  });
  document.addEventListener("focusout", (event) => { if (plotOf(event)) clear(); });

  // A refresh draws the plot anew; the same sample, or the newest one, stays under the cursor.
  document.addEventListener("dashboard:refreshed", () => {
    if (!shown) return;
    const { plot, seconds, isNewest } = shown;
    if (!plot.isConnected) { shown = null; return; }
    const points = pointsOf(plot);
    const moved = shown.start - Number(plot.dataset.start);
    show(plot, isNewest ? points.length - 1 : nearest(points, seconds + moved / 1000));
  });
})();
