// Numbers as the report writes them, and times.
live.numbers = (() => {
  const significant = (value, digits) => Number(value.toPrecision(digits));

  // Four significant digits, never rounded down: a bound that is shown must still be one. A double
  // has fewer than 100 digits here, so that those behind the fourth are all known.
  const bound = (value) => {
    if (typeof value !== "number" || !Number.isFinite(value)) return "∞";
    if (value <= 0) return String(value);
    const [digits, power] = value.toExponential(99).split("e");
    const all = digits.replace(".", "");
    const head = Number(all.slice(0, 4)) + (/[1-9]/.test(all.slice(4)) ? 1 : 0);
    return String(Number(head + "e" + (Number(power) - 3)));
  };

  const number = (value) => {
    if (!Number.isFinite(value)) return "∞";
    if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return String(significant(value, 3));
    return Math.abs(value) < 1000 ? String(significant(value, 4)) : Math.round(value).toLocaleString("en");
  };

  const percent = (value) => (100 * value).toFixed(1) + "\u00a0%";

  const seconds = (value) => {
    if (value < 1e-3) return (value * 1e6).toFixed(0) + "\u00a0µs";
    if (value < 1) return significant(value * 1e3, 3) + "\u00a0ms";
    if (value < 120) return significant(value, 3) + "\u00a0s";
    return value < 7200 ? significant(value / 60, 3) + "\u00a0min" : significant(value / 3600, 3) + "\u00a0h";
  };

  const bytes = (value) => {
    let left = value;
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (Math.abs(left) < 999.5) return significant(left, 3) + "\u00a0" + unit;
      left /= 1000;
    }
    return significant(left, 3) + "\u00a0TB";
  };

  // δ as the report writes it: 1e-05.
  const tiny = (value) => (value < 1e-4 ? value.toExponential().replace(/-(\d)$/, "-0$1") : String(value));

  const whole = (value) => value.toLocaleString("en");

  // How long something has lasted, in whole units: a clock that people glance at.
  const lasting = (value) => {
    const left = Math.max(0, Math.floor(value));
    if (left < 60) return left + "\u00a0s";
    if (left < 3600) return Math.floor(left / 60) + "\u00a0min\u00a0" + (left % 60) + "\u00a0s";
    if (left < 172800) return Math.floor(left / 3600) + "\u00a0h\u00a0" + Math.floor((left % 3600) / 60) + "\u00a0min";
    return Math.floor(left / 86400) + "\u00a0days";
  };

  const two = (value) => String(value).padStart(2, "0");
  const moment = (time) => {
    const when = new Date(1000 * time);
    return two(when.getHours()) + ":" + two(when.getMinutes()) + ":" + two(when.getSeconds());
  };

  return { bound, number, percent, seconds, bytes, tiny, whole, lasting, moment };
})();
