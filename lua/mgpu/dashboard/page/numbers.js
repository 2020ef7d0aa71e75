// Numbers as text, and the ticks of axes.

function shown(x) {
  if (typeof x !== 'number') return '';
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'nan' : x > 0 ? 'inf' : '-inf';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return String(Number(x.toPrecision(5)));
}

function duration(seconds) {
  if (seconds < 1e-3) return `${shown(Number((seconds * 1e6).toPrecision(3)))} µs`;
  if (seconds < 1) return `${shown(Number((seconds * 1e3).toPrecision(3)))} ms`;
  if (seconds < 60) return `${shown(Number(seconds.toPrecision(3)))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
}

const BYTES = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];

// The unit in which so many bytes are told.
function bytesUnit(n) { return BYTES.find(([, size]) => n >= size) || BYTES[3]; }

function bytes(n) {
  const [name, size] = bytesUnit(n);
  return `${Number((n / size).toPrecision(3))} ${name}`;
}

function clock(seconds) { return new Date(seconds * 1000).toLocaleTimeString(); }

// The step 1, 2 or 5 times a power of ten that gives about n steps over the range.
function niceStep(range, n) {
  const rough = range / n, power = 10 ** Math.floor(Math.log10(rough)), digit = rough / power;
  return (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10) * power;
}

function linearTicks(low, high, n) {
  const step = niceStep(high - low, n), first = Math.ceil(low / step - 1e-6), ticks = [];
  for (let k = 0; k < 4 * n && first + k <= high / step + 1e-6; k++) { // large equal numbers leave no room for ticks
    ticks.push(Number(((first + k) * step).toPrecision(12)));
  }
  return ticks;
}

// Powers of ten, over few decades also 2 and 5 times these; where that gives fewer than two, linear ticks.
function logTicks(low, high, n) {
  const first = Math.log10(low), last = Math.log10(high), ticks = [];
  const every = Math.max(1, Math.ceil((last - first) / n)), digits = last - first < 3 ? [1, 2, 5] : [1];
  for (let power = Math.floor(first); power <= Math.ceil(last); power++) {
    if (power % every !== 0) continue;
    for (const digit of digits) {
      const value = digit * 10 ** power;
      if (value >= low && value <= high) ticks.push(value);
    }
  }
  return ticks.length < 2 ? linearTicks(low, high, n) : ticks;
}

// An axis {low, high, log, ticks, at: value -> 0..1} with some room at both ends.
function valueAxis(low, high, log, n) {
  if (!(low <= high)) [low, high, log] = [0, 1, false];
  if (log && low > 0) {
    if (low === high) [low, high] = [low / 2, high * 2];
    const room = (high / low) ** 0.04;
    [low, high] = [low / room, high * room];
    const from = Math.log(low), span = Math.log(high) - from;
    return { low, high, log: true, ticks: logTicks(low, high, n), at: v => v > 0 ? (Math.log(v) - from) / span : NaN };
  }
  const room = high > low ? (high - low) * 0.04 : Math.abs(high) * 0.1 || 1;
  [low, high] = [low - room, high + room];
  return { low, high, log: false, ticks: linearTicks(low, high, n), at: v => (v - low) / (high - low) };
}

// An axis from 0 on. unit: what its ticks are round numbers of.
function zeroAxis(high, n, unit) {
  const top = high > 0 && high < 8e307 ? high * 1.05 : unit;
  return { low: 0, high: top, log: false, ticks: linearTicks(0, top / unit, n).map(v => v * unit), at: v => v / top };
}
