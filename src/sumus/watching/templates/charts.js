// A line over rounds with a band around it, drawn anew into the same elements: what an update costs
// depends on how many points are kept, never on how many rounds there were.
live.charts = (() => {
  const { make, drawn, write, mark, fill, show } = live.elements;
  const WIDTH = 460, HEIGHT = 250, LEFT = 62, RIGHT = 14, TOP = 12, BOTTOM = 34;

  const step = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  };

  const upAxis = (values, fromZero) => {
    let low = fromZero ? 0 : Math.min(...values), high = Math.max(...values);
    const size = Math.max(Math.abs(low), Math.abs(high));
    if (high - low <= 1e-9 * size || size < 1e-200) [low, high] = fromZero || size < 1e-200 ? [0, high || 1] : [low - 0.5 * size, high + 0.5 * size];
    const each = step((high - low) / 5);
    const first = Math.floor(low / each + 1e-9), last = Math.ceil(high / each - 1e-9);
    const ticks = Array.from({ length: last - first + 1 }, (_, n) => (first + n) * each);
    return { low: Math.min(ticks[0], low), high: Math.max(ticks[ticks.length - 1], high), ticks };
  };

  const roundAxis = (last) => {
    const each = Math.max(1, Math.ceil(step(Math.max(last, 2) / 8)));
    const ticks = [1];
    for (let tick = each; tick <= last; tick += each) if (tick > 1) ticks.push(tick);
    return { low: 1, high: Math.max(last, 2), ticks };
  };

  const spoken = (title, points, told) => {
    if (!points.length) return title + ": nothing yet.";
    const [first, last] = [points[0], points[points.length - 1]];
    const end = told(last[1]) + " in round " + last[0];
    return title + ": " + (points.length > 1 ? "from " + told(first[1]) + " in round " + first[0] + " to " + end : end) + ".";
  };

  class Chart {
    constructor(key, { colour, fromZero, told, head, tick = told }) {
      Object.assign(this, { colour, fromZero, told, tick, columns: [], place: 0 });
      this.title = make("h3", "figure-title");
      this.parts = {
        grid: drawn("g", {}), limit: drawn("line", { class: "limit" }), limitName: drawn("text", { class: "limit-name" }),
        band: drawn("path", { class: "band c" + colour }), line: drawn("path", { class: "line c" + colour }),
        end: drawn("circle", { class: "dot c" + colour, r: 3.2 }), cursor: drawn("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM }),
        empty: drawn("text", { class: "empty", x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }),
      };
      this.svg = drawn("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
      this.svg.append(...Object.values(this.parts));
      this.caption = make("figcaption", "");
      this.rows = make("tbody", "");
      const heads = head.map((name, n) => Object.assign(make("th", n ? "n" : "", name), { scope: "col" }));
      const table = make("table", "", make("caption", "hidden"), make("thead", "", make("tr", "", ...heads)), this.rows);
      this.table = table;
      const scroll = make("div", "scroll", table);
      Object.assign(scroll, { tabIndex: 0 }).setAttribute("role", "region");
      this.scroll = scroll;
      this.details = make("details", "", make("summary", "", "As a table"), scroll);
      this.details.addEventListener("toggle", () => this.tabulate());
      this.node = make("figure", "figure", this.title, this.svg, this.details, this.caption);
      this.node.dataset.figure = key;
      live.tips.listen(this);
    }

    // points: [round, value, half-width or null]; values that are not there are left out before.
    update({ title, points, last, limit, caption, rows }) {
      const { grid, line, band, end, empty } = this.parts;
      write(this.title, title);
      write(this.caption, caption);
      mark(this.svg, "aria-label", spoken(title, points, this.told));
      mark(this.scroll, "aria-label", title + " as a table");
      write(this.table.caption, title + ", round by round");
      this.tableRows = rows;
      this.tabulate();
      const values = points.flatMap(([, value, width]) => (width === null ? [value] : [value - width, value + width]));
      const up = upAxis(values.concat(limit ? [limit[0]] : values.length ? [] : [0, 1]), this.fromZero);
      const across = roundAxis(last);
      const x = (value) => LEFT + ((WIDTH - RIGHT - LEFT) * (value - across.low)) / (across.high - across.low);
      const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - up.low)) / (up.high - up.low);
      const at = (round, value) => x(round).toFixed(1) + "," + y(value).toFixed(1);
      fill(grid, [up, across], () => this.axes(up, across, x, y));
      mark(line, "d", points.length ? "M" + points.map(([round, value]) => at(round, value)).join("L") : "M0,0");
      const wide = points.filter(([, , width]) => width !== null);
      const there = wide.map(([round, value, width]) => at(round, value + width));
      const back = wide.map(([round, value, width]) => at(round, value - width)).reverse();
      mark(band, "d", wide.length > 1 ? "M" + there.concat(back).join("L") + "Z" : "M0,0");
      const final = points[points.length - 1];
      mark(end, "cx", final ? x(final[0]).toFixed(1) : "-9");
      mark(end, "cy", final ? y(final[1]).toFixed(1) : "-9");
      write(empty, points.length ? "" : "No round yet");
      this.bar(limit, y);
      this.columns = points.map(([round, value, width]) => ({ at: x(round), round, told: this.told(value, width) }));
      this.place = Math.min(this.place, this.columns.length - 1);
    }

    axes(up, across, x, y) {
      const base = HEIGHT - BOTTOM;
      const lines = up.ticks.map((tick) => drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }));
      const names = up.ticks.map((tick) => this.label(tick === 0 ? "0" : this.tick(Number(tick.toPrecision(12))).replace(".0\u00a0", "\u00a0"), LEFT - 8, y(tick) + 4, "end"));
      const rounds = across.ticks.map((tick) => this.label(String(tick), x(tick), base + 16, "middle"));
      const name = this.label("round", WIDTH - RIGHT, HEIGHT - 3, "end");
      name.setAttribute("class", "name");
      return [...lines, drawn("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: base, y2: base }), ...names, ...rounds, name];
    }

    label(text, x, y, anchor) {
      const node = drawn("text", { class: "tick", x, y, "text-anchor": anchor });
      node.textContent = text;
      return node;
    }

    bar(limit, y) {
      const { limit: line, limitName: name } = this.parts;
      const height = limit ? y(limit[0]) : -9;
      for (const [key, value] of Object.entries({ x1: LEFT, x2: WIDTH - RIGHT, y1: height, y2: height })) mark(line, key, String(value));
      for (const [key, value] of Object.entries({ x: LEFT + 4, y: height - TOP < 14 ? height + 14 : height - 5 })) mark(name, key, String(value));
      write(name, limit ? limit[1] : "");
    }

    // Rows are made only while somebody looks at them.
    tabulate() {
      if (!this.details.open) return;
      fill(this.rows, this.tableRows, () =>
        this.tableRows.map(([first, ...rest]) => {
          const heading = Object.assign(make("th", "", first), { scope: "row" });
          return make("tr", "", heading, ...rest.map((value) => make("td", "n", value)));
        }),
      );
    }
  }

  return { Chart };
})();
