// Pointing at a chart, or the arrow keys on it, show the values of one round.
live.tips = (() => {
  const { at, make, mark, write, show } = live.elements;
  const tip = at("tip");

  const reveal = (chart, to) => {
    if (!chart.columns.length) return;
    chart.place = Math.min(Math.max(to, 0), chart.columns.length - 1);
    const column = chart.columns[chart.place];
    const box = chart.svg.getBoundingClientRect();
    const scale = chart.svg.viewBox.baseVal.width / box.width;
    mark(chart.parts.cursor, "x1", column.at.toFixed(1));
    mark(chart.parts.cursor, "x2", column.at.toFixed(1));
    chart.svg.classList.add("hovered");
    const dot = make("i", "c" + chart.colour);
    tip.replaceChildren(make("p", "", "round " + live.numbers.whole(column.round)), make("p", "", dot, make("b", "", column.told)));
    show(tip, true);
    const left = box.left + column.at / scale;
    const room = document.documentElement.clientWidth;
    const x = left + 14 + tip.offsetWidth > room ? left - 14 - tip.offsetWidth : left + 14;
    tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, box.top + box.height / 2 - tip.offsetHeight - 12)}px)`;
  };

  const conceal = (chart) => {
    chart.svg.classList.remove("hovered");
    show(tip, false);
  };

  const listen = (chart) => {
    chart.svg.addEventListener("pointermove", (event) => {
      const box = chart.svg.getBoundingClientRect();
      const place = ((event.clientX - box.left) * chart.svg.viewBox.baseVal.width) / box.width;
      const far = chart.columns.map((column) => Math.abs(column.at - place));
      reveal(chart, far.indexOf(Math.min(...far)));
    });
    chart.svg.addEventListener("pointerleave", () => conceal(chart));
    chart.svg.addEventListener("blur", () => conceal(chart));
    chart.svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: chart.place - 1, ArrowRight: chart.place + 1, Home: 0, End: chart.columns.length - 1 };
      if (event.key === "Escape") conceal(chart);
      else if (event.key in moves) {
        event.preventDefault();
        reveal(chart, tip.hidden && event.key.startsWith("Arrow") ? chart.columns.length - 1 : moves[event.key]);
        const column = chart.columns[chart.place];
        if (column) write(at("spoken"), "round " + column.round + ": " + column.told);
      }
    });
  };

  return { listen };
})();
