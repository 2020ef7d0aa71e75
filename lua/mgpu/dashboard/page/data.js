// What the page knows: filled by lines of JSON, each an event of the program.
//
//   j  the job: script, host, began, version          q  its end
//   r  a run begins: r (its number), from, name, began, epochs, first, steps, tables, graph
//   b  values within an epoch: r, e (epoch), s (step in it), g (step of all), w (seconds), v (name -> number)
//   e  values of an epoch: the same; its validation and values of callbacks are among v
//   p  times of d seconds, n steps, by part: p; memory m: [name, in use, peak, limit]
//   h  a histogram: name, low, high, n (all numbers), c (counts)
//   i  a picture: title, type, data (base64)          t  a message: k (output or warning), w (time of day), text
//   x  a run has ended: state, text
// Everything in an event is data: it reaches the page as text or numbers only.

const job = { script: '', host: '', began: 0, version: '', ended: false };
const runs = new Map();
const pictures = new Map(); // title -> array
const messages = [];
const MOST_MESSAGES = 5000;

class Points { // a curve: three coordinates to choose from, and the values
  constructor() {
    this.epoch = [];
    this.step = [];
    this.time = [];
    this.values = [];
  }
  add(epoch, step, time, value) {
    this.epoch.push(epoch);
    this.step.push(step);
    this.time.push(time);
    this.values.push(value);
  }
}

function pointsOf(map, name) {
  if (!map.has(name)) map.set(name, new Points());
  return map.get(name);
}

function newRun(event) {
  return {
    number: event.r, name: String(event.name), from: event.from, began: Number(event.began) || 0,
    epochs: Number(event.epochs) || 0, first: Number(event.first) || 0, steps: Number(event.steps) || 0,
    tables: Array.isArray(event.tables) ? event.tables : [], graph: event.graph, state: 'running', text: '', seconds: 0,
    epoch: 0, step: 0, done: 0, shown: true, heard: 0, batches: new Map(), ended: new Map(), parts: new Map(),
    memory: new Map(), memoryNow: [], histograms: new Map(), partsNow: null,
    partSums: new Map(), partSteps: 0,
  };
}

function addValues(run, event, map, epoch) {
  const step = Number(event.g) || 0, time = Number(event.w) || 0;
  for (const [name, value] of Object.entries(event.v || {})) {
    pointsOf(map, name).add(epoch, step, time, Number(value));
  }
  run.seconds = time;
  run.heard = Date.now();
}

const handlers = {
  j(event) {
    for (const name of ['script', 'host', 'version']) job[name] = String(event[name] || '');
    job.began = Number(event.began) || 0;
  },
  q() { job.ended = true; },
  r(event) { runs.set(event.r, newRun(event)); },
  b(event, run) {
    if (event.e > run.epoch) run.batches.forEach(points => { // a gap between epochs
      const last = points.values.length - 1;
      if (last >= 0) points.add(points.epoch[last], points.step[last], points.time[last], NaN);
    });
    run.epoch = Number(event.e) || 0;
    run.step = Number(event.s) || 0;
    run.steps = run.steps && Math.max(run.steps, run.step);
    const part = run.steps ? run.step / run.steps : 0.5;
    addValues(run, event, run.batches, run.epoch - 1 + part);
  },
  e(event, run) {
    run.epoch = run.done = Number(event.e) || 0;
    run.step = run.steps = Number(event.s) || run.steps;
    addValues(run, event, run.ended, run.epoch);
  },
  p(event, run) {
    const steps = Number(event.n) || 1, at = run.steps ? event.e - 1 + event.s / run.steps : event.e - 0.5;
    for (const [name, seconds] of Object.entries(event.p || {})) {
      pointsOf(run.parts, name).add(at, Number(event.g), Number(event.w), Number(seconds) / steps);
    }
    for (const [name, used] of event.m || []) {
      pointsOf(run.memory, String(name)).add(at, Number(event.g), Number(event.w), Number(used));
    }
    for (const [name, seconds] of Object.entries(event.p || {})) {
      run.partSums.set(name, (run.partSums.get(name) || 0) + Number(seconds));
    }
    run.partSteps += steps;
    run.partsNow = { steps, seconds: Number(event.d) || 0, parts: Object.entries(event.p || {}) };
    run.memoryNow = event.m || [];
  },
  h(event, run) {
    const name = String(event.name);
    if (!run.histograms.has(name)) run.histograms.set(name, []);
    run.histograms.get(name).push({ epoch: Number(event.e), low: Number(event.low), high: Number(event.high),
      n: Number(event.n), counts: (event.c || []).map(Number) });
  },
  i(event) {
    const title = String(event.title), run = runs.get(event.r);
    if (!/^image\/(png|svg\+xml)$/.test(event.type) || !/^[A-Za-z0-9+/=]*$/.test(event.data)) return;
    if (!pictures.has(title)) pictures.set(title, []);
    pictures.get(title).push({ source: `data:${event.type};base64,${event.data}`, png: event.type === 'image/png',
      run: run ? run.name : '', epoch: run ? run.epoch : 0, time: Number(event.w) || 0 });
  },
  t(event) {
    messages.push({ kind: event.k === 'warning' ? 'warning' : 'output', time: Number(event.w) || 0,
      text: String(event.text) });
    if (messages.length > MOST_MESSAGES) messages.splice(0, messages.length - MOST_MESSAGES);
  },
  x(event, run) {
    run.state = String(event.state);
    run.text = event.text === undefined ? '' : String(event.text);
    run.seconds = Number(event.w) || run.seconds;
  },
};

const OF_RUNS = new Set(['b', 'e', 'p', 'h', 'x']);

// Takes whole lines.
function takeEvents(text) {
  for (const line of text.split('\n')) {
    if (line === '') continue;
    try {
      const event = JSON.parse(line);
      if (!Object.hasOwn(handlers, event.t)) continue;
      const run = runs.get(event.r);
      if (OF_RUNS.has(event.t) && !run) continue;
      handlers[event.t](event, run);
    } catch (problem) {
      console.error('an event could not be read:', problem);
    }
  }
}

const kept = document.getElementById('events'); // what a saved page is made of

// Takes a piece of the log, which ends with a whole line.
function takePiece(text) {
  kept.append(text);
  takeEvents(text);
}
