// Events in, one drawing a frame out; a stream that is lost is tried again, later and later.
live.stream = (() => {
  const { at, write, show } = live.elements;
  const { lasting, moment, whole } = live.numbers;
  const PAUSES = [0.5, 1, 2, 4, 8, 15];
  const SILENCE = 30;  // seconds without a sign of life: the stream is dead although it is open
  const SPOKEN = 15;  // seconds between two rounds that are read out
  let source = null, state = null, version = 0, drawn = true, skew = 0, over = false;
  let lost = null, tries = 0, next = null, heard = 0, said = { at: -SPOKEN, text: "" };

  const clock = () => performance.now() / 1000;
  const time = () => Date.now() / 1000 + skew;

  const speak = () => {
    const ended = live.known.ended.includes(state.stage), words = live.known.words[state.stage];
    const connection = state.connection && !state.connection.up ? ". The server does not answer" : "";
    const text = (ended ? words + (state.said ? ": " + state.said : "") : state.rounds ? `Round ${state.round} of ${state.rounds}` : words) + connection;
    const pressing = ended || connection;
    if (text === said.text || (!pressing && clock() - said.at < SPOKEN)) return;
    said = { at: clock(), text };
    write(at("spoken"), text);
  };

  const draw = () => {
    drawn = true;
    live.drawings += 1;
    live.version = version;
    live.view.render(state);
    speak();
    tick();
  };

  const banner = () => {
    const away = state && state.connection && !state.connection.up ? state.connection : null;
    show(at("banner"), Boolean(lost || away));
    at("banner").classList.toggle("over", Boolean(lost && over));
    let text = "", soon = "";
    if (lost && over) text = "The process that was watched has ended; this is its last word.";
    else if (lost) {
      text = `Nothing heard from the process that is watched since ${moment(lost)}; what is below is as it was then.`;
      soon = next === null ? "Trying now." : `Next try in ${lasting(Math.ceil(next - clock()))}.`;
    } else if (away) {
      text = `The server does not answer since ${moment(away.since)}${away.why ? ` (${away.why})` : ""}.`;
      soon = `${whole(away.tries)} ${away.tries === 1 ? "try" : "tries"} failed, ` + (away.next_try === null || away.next_try <= time() ? "trying now." : `next try in ${lasting(Math.ceil(away.next_try - time()))}.`);
    }
    write(at("banner-text"), text);
    write(at("banner-next"), soon);
    show(at("again"), Boolean(lost) && !over);
  };

  const tick = () => {
    if (!lost) live.view.clock(time());
    banner();
  };

  const lose = () => {
    if (source) source.close();
    source = null;
    lost = lost || time();
    if (over) return tick();
    const pause = PAUSES[Math.min(tries, PAUSES.length - 1)];
    tries += 1;
    next = clock() + pause;
    tick();
  };

  const open = () => {
    if (source) source.close();
    next = null;
    heard = clock();
    source = new EventSource("events");
    source.addEventListener("clock", (event) => {
      heard = clock();
      skew = Number(event.data) - Date.now() / 1000;
    });
    source.addEventListener("end", () => {
      over = true;
      lose();
    });
    source.onmessage = (event) => {
      heard = clock();
      [lost, tries, over] = [null, 0, false];
      state = JSON.parse(event.data);
      version = Number(event.lastEventId);
      if (drawn) requestAnimationFrame(draw);
      drawn = false;
    };
    source.onerror = lose;
  };

  const start = () => {
    at("again").addEventListener("click", open);
    addEventListener("online", () => lost && open());
    addEventListener("visibilitychange", () => !document.hidden && lost && !over && open());
    setInterval(() => {
      if (source && clock() - heard > SILENCE) lose();
      else if (!source && next !== null && clock() >= next) open();
      tick();
    }, 1000);
    open();
  };

  return { start };
})();
live.stream.start();
