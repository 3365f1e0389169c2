// From a state to what is on the page.
live.view = (() => {
  const { at, write, show, mark, make, drawn, fill, terms } = live.elements;
  const { bound, number, percent, seconds, bytes, tiny, whole, lasting, moment } = live.numbers;
  const ROLES = { train: "training on this machine", operator: "the operator of a federation", server: "the server of a federation", silo: "a silo, for its own people" };
  const VERDICTS = { proved: "Proved", "not proved": "Not proved", void: "Void", none: "No guarantee" };
  const HOW = { secure: "noisy count, ± holds with 95 %", "simulation-only": "in the clear: simulation only" };
  const BRISK = 1.5;  // seconds of a round
  const ORDER = ["measure", "epsilon", "seconds", "traffic"];
  const charts = {};
  let latest = null;

  const measureText = (state) => (state.measured.share ? percent : number);

  const masthead = (state) => {
    write(at("role"), " · " + ROLES[state.watched]);
    const title = state.watched === "silo" ? state.name : state.plan ? state.plan.title : state.name || "Getting ready";
    write(at("title"), title);
    const facts = state.plan ? state.plan.terms.slice(0, 3).map(([, value]) => value) : [];
    if (state.plan && state.silos) facts.push(`${whole(state.silos)} silos`);
    fill(at("facts"), facts, () => facts.map((fact) => make("span", "", fact)));
    const far = state.rounds ? `${state.round} of ${state.rounds} · ` : "";
    document.title = `${far}${live.known.words[state.stage]} · ${title} · Sumus`;
  };

  // Stages that change several times a second would only flicker.
  const brisk = (state) => {
    const last = Object.values(state.costs.seconds).reduce((sum, each) => sum + each, 0);
    return ["local", "survivors", "unmasking"].includes(state.stage) && state.round > 0 && state.round < state.rounds && last < BRISK && !state.said;
  };

  const now = (state) => {
    const stage = at("stage"), going = !live.known.ended.includes(state.stage);
    mark(stage, "data-stage", state.stage);
    stage.toggleAttribute("data-live", going && !["idle", "ready", "paused"].includes(state.stage));
    write(at("stage-words"), brisk(state) ? `Round ${whole(state.round + 1)} is under way` : live.known.words[state.stage]);
    write(at("said"), state.said);
    show(at("said"), Boolean(state.said));
    show(at("way"), state.rounds > 0);
    const share = state.rounds ? Math.min(1, state.round / state.rounds) : 0;
    mark(at("way-done"), "width", String(Math.round(1000 * share)));
    mark(at("way"), "aria-valuemax", String(state.rounds));
    mark(at("way"), "aria-valuenow", String(state.round));
    const rate = state.round && state.costs.total_seconds ? state.costs.total_seconds / state.round : 0;
    const left = rate && going ? ` · about ${lasting(rate * (state.rounds - state.round))} to go at the pace so far` : "";
    write(at("way-words"), `Round ${whole(state.round)} of ${whole(state.rounds)}${left}`);
  };

  const bar = (share) => {
    const full = Math.round(1000 * Math.min(1, share));
    const node = drawn("svg", { class: "budget-bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    node.append(drawn("rect", { class: "track", width: 1000, height: 10 }), drawn("rect", { class: "fill c0" + (share > 0.9 ? " over" : ""), width: full, height: 10 }));
    return node;
  };

  const booked = (books) => {
    const runs = books.runs === 1 ? "1 run" : `${whole(books.runs)} runs`;
    const limit = books.limit === null ? "no limit is set" : `limit ${bound(books.limit)} (${books.said_by})`;
    const spent = typeof books.spent === "number" ? `ε ≤ ${bound(books.spent)} at δ = ${tiny(books.delta)}` : "no bound holds";
    const proved = books.proved ? "every part proved" : "NOT every part proved";
    return `${spent} for one ${books.unit} in ${runs}, by simple addition, each run with its own neighbours and trust; ${proved}; ${limit}`;
  };

  const guarantee = (state) => {
    const { promise, books } = state, section = at("guarantee");
    show(section, promise !== null);
    if (promise === null) return;
    const held = promise.epsilon !== null;
    section.className = "guarantee " + promise.verdict.replace(" ", "-");
    write(at("verdict"), VERDICTS[promise.verdict]);
    at("verdict").className = "verdict " + promise.verdict.replace(" ", "-");
    const epsilon = at("epsilon");
    epsilon.classList.toggle("spoken", !held);
    const told = promise.spent === null ? bound(promise.epsilon) : bound(promise.spent);
    fill(epsilon, [held, told], () => (held ? [make("span", "symbol", "ε ≤ "), told] : ["No privacy guarantee"]));
    write(at("delta"), !held ? "" : (promise.spent === null ? "for the whole plan" : `spent of ${bound(promise.epsilon)}`) + ` at δ = ${tiny(promise.delta)}`);
    show(at("spent-bar"), held && promise.spent !== null);
    if (held) mark(at("spent-done"), "width", String(Math.round(1000 * Math.min(1, (promise.spent ?? 0) / promise.epsilon))));
    const pairs = held
      ? [["Protects", promise.neighbours], ["Counts on", promise.trust], ["Analysis", promise.analysis], ["Proved", promise.verdict === "proved" ? "yes, for the algorithm that runs" : "NO"]]
      : [["Protects", promise.verdict === "void" ? "nothing, in this run" : "nothing"], [promise.verdict === "void" ? "Void because" : "Why", promise.why]];
    const dataset = books === null ? [] : [["Data set " + books.dataset, booked(books), ...(books.limit !== null && typeof books.spent === "number" ? [books.spent / books.limit] : [])]];
    const known = [...pairs, ...dataset];
    fill(at("terms"), known, () =>
      known.flatMap(([name, value, share]) => [make("dt", "", name), make("dd", "", value, ...(share === undefined ? [] : [bar(share)]))]),
    );
  };

  const tiles = (state) => {
    const { measured, costs } = state, list = [];
    if (measured) {
      const [value, width] = measured.text.split(" ± ");
      const told = width ? `± ${width} with 95 %, noisy count` : HOW[measured.how];
      list.push([measured.title, value, `${told}, round ${whole(measured.round)}`]);
    }
    if (state.rounds) list.push(["Rounds", whole(state.round), `of ${whole(state.rounds)} planned`]);
    if (state.watched === "silo") {
      for (const part of state.parts) list.push([part.name, part.up ? "runs" : "is down", part.restarts ? `started again ${whole(part.restarts)} times` : "never started again", !part.up]);
    } else if (state.silos) {
      const few = state.needed > state.connected;
      list.push(["Silos there", `${whole(state.connected)} of ${whole(state.silos)}`, `a round needs ${whole(state.needed)}`, few]);
      const time = Object.values(costs.seconds).reduce((sum, each) => sum + each, 0);
      list.push(["Traffic", bytes(costs.bytes_up + costs.bytes_down), `in the last round, ${bytes(costs.total_bytes_up + costs.total_bytes_down)} in all`]);
      list.push(["Time", seconds(time), `for the last round, ${seconds(costs.total_seconds)} in all`]);
    }
    if (state.lost_rounds) list.push(["Lost rounds", whole(state.lost_rounds), "they cost no privacy twice", true]);
    if (state.refused) list.push(["Refusals", whole(state.refused), "with their reasons below", true]);
    show(at("tiles"), list.length > 0);
    fill(at("tiles"), list, () =>
      list.map(([name, value, remark, bad]) =>
        make("div", bad ? "tile bad" : "tile", make("p", "tile-name", name), make("p", "tile-value", value), make("p", "tile-remark", remark)),
      ),
    );
  };

  const chart = (key, wanted, options) => {
    if (wanted && !(key in charts)) {
      charts[key] = new live.charts.Chart(key, options);
      at("figures").append(...ORDER.filter((name) => name in charts).map((name) => charts[name].node));
    }
    if (key in charts) show(charts[key].node, wanted);
    return charts[key];
  };

  const figures = (state) => {
    const { history, promise, measured } = state;
    const rounds = history.round, last = Math.max(state.rounds, state.round, 1);
    const thinned = history.every > 1 ? ` One round in ${whole(history.every)} is drawn.` : "";
    const points = (values, widths) => rounds.map((round, n) => [round, values[n], widths ? widths[n] : null]).filter(([, value]) => value !== null);
    show(at("charts"), rounds.length > 0);
    if (measured) {
      const told = measureText(state);
      const text = (value, width) => told(value) + (width === null || width === undefined ? "" : ` ± ${told(width)}`);
      chart("measure", true, { colour: 0, fromZero: false, told: text, head: ["Round", "Value", "±"] }).update({
        title: measured.title, points: points(history.value, history.plus_minus), last: state.round || 1, limit: null,
        caption: `Of the released model, ${HOW[measured.how]}.${thinned}`,
        rows: points(history.value, history.plus_minus).map(([round, value, width]) => [whole(round), told(value), width === null ? "–" : told(width)]),
      });
    }
    const held = promise !== null && promise.epsilon !== null;
    const spent = points(history.epsilon);
    chart("epsilon", held, { colour: 2, fromZero: true, told: bound, tick: number, head: ["Round", "ε ≤"] })?.update({
      title: "ε spent", points: held ? spent : [], last, limit: held ? [promise.epsilon, `the plan's ε = ${bound(promise.epsilon)}`] : null,
      caption: held ? `At δ = ${tiny(promise.delta)}: ${promise.neighbours.split(";")[0]}; counts on ${promise.trust}; analysis ${promise.analysis}, ${promise.verdict === "proved" ? "proved" : "NOT PROVED"}.${thinned}` : "",
      rows: spent.map(([round, value]) => [whole(round), bound(value)]),
    });
    const timed = state.watched !== "silo";
    chart("seconds", timed, { colour: 1, fromZero: true, told: seconds, head: ["Round", "Time"] })?.update({
      title: "Time of a round", points: points(history.seconds), last: state.round || 1, limit: null,
      caption: `From the invitation to the model that has moved.${thinned}`,
      rows: points(history.seconds).map(([round, value]) => [whole(round), seconds(value)]),
    });
    chart("traffic", timed, { colour: 3, fromZero: true, told: bytes, head: ["Round", "Traffic"] })?.update({
      title: "Traffic of a round", points: points(history.bytes), last: state.round || 1, limit: null,
      caption: `Sent and received by all silos together.${thinned}`,
      rows: points(history.bytes).map(([round, value]) => [whole(round), bytes(value)]),
    });
  };

  const presence = (state) => {
    const silo = state.watched === "silo";
    write(at("silos-title"), silo ? "Processes and connection" : "Silos");
    const rows = silo
      ? [...state.parts.map((part) => [part.name, part.up ? "up" : "down", part.up ? "runs" : "is down", part.since, part.restarts ? `started again ${whole(part.restarts)} times` : ""]),
         ...(state.connection ? [["server", state.connection.up ? "up" : "away", state.connection.up ? "connected" : "not connected", state.connection.since, state.connection.why]] : [])]
      : state.presences.map((each) => [each.name, each.presence.replace(" ", "-"), each.presence, each.since, each.why]);
    show(at("silos"), rows.length > 0);
    const more = silo ? 0 : state.silos - state.presences.length;
    write(at("silos-note"), silo ? "" : `${whole(state.connected)} of ${whole(state.silos)} are there, a round needs ${whole(state.needed)}.` + (more > 0 ? ` ${whole(more)} more are not listed.` : ""));
    fill(at("silos-rows"), rows, () =>
      rows.map(([name, kind, words, since, why]) => {
        const heading = Object.assign(make("th", "", name), { scope: "row" });
        const told = make("td", "", make("span", "state " + kind, words), ...(why ? [make("span", "why", why)] : []));
        return make("tr", "", heading, told, make("td", "n", since === null ? "–" : moment(since)));
      }),
    );
  };

  const trouble = (state) => {
    const refusals = state.refusals.map((each) => [each.when, `${each.who} refused: ${each.reason}` + (each.times > 1 ? ` (${whole(each.times)} times)` : "")]);
    const lost = state.lost.map((each) => [each.when, `round ${whole(each.round)} was lost` + (each.reason ? `: ${each.reason}` : "")]);
    const events = [...refusals, ...lost].sort((one, other) => other[0] - one[0]);
    show(at("trouble"), events.length > 0);
    const hidden = state.refused + state.lost_rounds - state.refusals.reduce((sum, each) => sum + each.times, 0) - lost.length;
    write(at("trouble-note"), hidden > 0 ? `The latest ones; ${whole(hidden)} earlier ones are in the journal.` : "");
    fill(at("trouble-rows"), events, () => events.map(([when, text]) => make("li", "", make("span", "when", moment(when)), text)));
    show(at("remarks"), state.remarks.length > 0);
    fill(at("remark-rows"), state.remarks, () => [...state.remarks].reverse().map((line) => make("li", "", line)));
  };

  const plan = (state) => {
    show(at("plan"), state.plan !== null);
    if (state.plan) {
      terms(at("plan-terms"), state.plan.terms);
      write(at("plan-hash"), state.plan.hash);
    }
    const result = state.result ? Object.entries({ Run: state.result.run, Report: state.result.report, Model: state.result.model }).filter(([, value]) => value) : [];
    show(at("result"), result.length > 0);
    fill(at("result-terms"), result, () => result.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", make("code", "", value))]));
  };

  const QUEUED = { "waiting": "waited-for", "running": "up", "finished": "connected", "set aside": "refused" };
  const queue = (state) => {
    const silo = state.watched === "silo", rows = state.queue;
    show(at("queue"), rows.length > 0);
    write(at("queue-title"), silo ? "Approved plans" : "Queue of plans");
    const count = (kind) => rows.filter((each) => each.state === kind).length;
    const told = ["running", "waiting", "set aside", "finished"].filter(count).map((kind) => `${whole(count(kind))} ${kind}`);
    write(at("queue-note"), told.join(", ") + ".");
    fill(at("queue-rows"), rows, () =>
      rows.map((each) => {
        const name = (each.number ? `${whole(each.number)}. ` : "") + each.words;
        const heading = Object.assign(make("th", "", name, make("span", "why", each.hash.slice(0, 16))), { scope: "row" });
        const words = make("td", "", make("span", "state " + QUEUED[each.state], each.state), ...(each.why ? [make("span", "why", each.why)] : []));
        return make("tr", "", heading, words, make("td", "n", `${whole(each.done)} of ${whole(each.rounds)}`));
      }),
    );
  };

  const clock = (time) => {
    if (!latest) return;
    const told = latest.brisk ? "" : latest.ended ? "since " + moment(latest.since) : "for " + lasting(time - latest.since);
    write(at("stage-since"), told);
  };

  const render = (state) => {
    for (const part of [masthead, now, guarantee, tiles, figures, presence, trouble, queue, plan]) part(state);
    latest = { since: state.since, ended: live.known.ended.includes(state.stage), brisk: brisk(state) };
  };

  return { render, clock };
})();
