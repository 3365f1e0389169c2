"use strict";
// Hovering a chart shows the values of the nearest round; printing opens what a signed copy should hold.
(() => {
  const tip = document.getElementById("tip");

  const rowOf = ([name, colour, value]) => {
    const row = document.createElement("p");
    const dot = document.createElement("i");
    dot.className = "c" + colour;
    const label = document.createElement("span");
    label.textContent = name;
    const shown = document.createElement("b");
    shown.textContent = value;
    row.append(dot, label, shown);
    return row;
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    const columns = JSON.parse(chart.dataset.columns);
    const cursor = chart.querySelector(".cursor");
    if (!columns.length) continue;

    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const scale = chart.viewBox.baseVal.width / box.width;
      const at = (event.clientX - box.left) * scale;
      const nearest = columns.reduce((a, b) => (Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a));
      cursor.setAttribute("x1", nearest.x);
      cursor.setAttribute("x2", nearest.x);
      chart.classList.add("hovered");
      const heading = document.createElement("p");
      heading.className = "round";
      heading.textContent = "round " + nearest.round;
      tip.replaceChildren(heading, ...nearest.rows.map(rowOf));
      tip.hidden = false;
      const left = box.left + nearest.x / scale;
      const room = document.documentElement.clientWidth;
      const x = left + 14 + tip.offsetWidth > room ? left - 14 - tip.offsetWidth : left + 14;
      const y = Math.max(4, event.clientY - tip.offsetHeight - 12);
      tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
    });
    chart.addEventListener("pointerleave", () => {
      chart.classList.remove("hovered");
      tip.hidden = true;
    });
  }

  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details[data-print]")) each.open = true;
  });
})();
