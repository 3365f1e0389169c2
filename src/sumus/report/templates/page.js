"use strict";
// Pointing at a chart, or the arrow keys on it, show the values of one round.
(() => {
  const tip = document.getElementById("tip");

  const rowOf = ([name, colour], value) => {
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

  for (const chart of document.querySelectorAll("svg.chart[data-values]")) {
    const { names, columns, heading = "round " } = JSON.parse(chart.dataset.values);
    const cursor = chart.querySelector(".cursor");
    let place = columns.length - 1;

    const show = (to) => {
      place = Math.min(Math.max(to, 0), columns.length - 1);
      const [at, round, ...values] = columns[place];
      const box = chart.getBoundingClientRect();
      const scale = chart.viewBox.baseVal.width / box.width;
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      chart.classList.add("hovered");
      const title = document.createElement("p");
      title.textContent = heading + round;
      const rows = names.flatMap((name, n) => (values[n] === null ? [] : [rowOf(name, values[n])]));
      tip.replaceChildren(title, ...rows);
      tip.hidden = false;
      const left = box.left + at / scale;
      const room = document.documentElement.clientWidth;
      const x = left + 14 + tip.offsetWidth > room ? left - 14 - tip.offsetWidth : left + 14;
      const y = Math.max(4, box.top + box.height / 2 - tip.offsetHeight - 12);
      tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
    };
    const hide = () => {
      chart.classList.remove("hovered");
      tip.hidden = true;
    };

    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const at = ((event.clientX - box.left) * chart.viewBox.baseVal.width) / box.width;
      const far = columns.map((column) => Math.abs(column[0] - at));
      show(far.indexOf(Math.min(...far)));
    });
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: columns.length - 1 };
      if (event.key === "Escape") hide();
      else if (event.key in moves) {
        event.preventDefault();
        show(tip.hidden && event.key.startsWith("Arrow") ? place : moves[event.key]);
      }
    });
  }
})();
// A table of many runs can be narrowed down.
(() => {
  const box = document.getElementById("filter");
  if (!box) return;
  const rows = [...document.querySelectorAll("#all-runs tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const told = document.getElementById("filtered");
  box.closest("label").hidden = false;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, n) => {
      row.hidden = !words.every((word) => texts[n].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    told.textContent = words.length ? `${shown} of ${rows.length} runs` : "";
  });
})();
