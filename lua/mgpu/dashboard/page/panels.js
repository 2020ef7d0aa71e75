// The sections of the page, filled from what data.js knows.

const at = id => document.getElementById(id);

// ---- runs ----

function stateText(run) {
  const running = job.ended || !live ? 'not finished' : lost ? 'running when last heard of' : 'running';
  const names = { running, done: 'done', stopped: 'stopped early',
    interrupted: 'interrupted', failed: 'failed' };
  return Object.hasOwn(names, run.state) ? names[run.state] : run.state;
}

function labelOf(run) { return run.from ? `${run.name} – ${run.from}` : run.name; }

function shownRuns() { return [...runs.values()].filter(run => run.shown); }

// Index of the run's color.
function colorIndex(run) { return [...runs.keys()].indexOf(run.number); }

function newest() { return [...runs.values()].filter(run => !run.from).pop() || [...runs.values()].pop(); }

function chosenRun() { return runs.get(Number(at('chosen').value)) || newest(); }

function lastValue(run, name) {
  const list = run.ended.get(name) || run.batches.get(name), values = list ? list.values : [];
  for (let i = values.length - 1; i >= 0; i--) if (!Number.isNaN(values[i])) return values[i];
  return values.length ? NaN : undefined;
}

// The names of values, in the order in which they came.
function valueNames() {
  const names = new Set();
  for (const run of runs.values()) for (const map of [run.batches, run.ended]) {
    for (const name of map.keys()) names.add(name);
  }
  return names;
}

function progressOf(run) {
  const total = run.epochs - run.first, within = run.steps ? Math.min(run.step / run.steps, 1) : 0;
  const done = Math.max(run.done - run.first, 0), now = run.epoch > run.done ? within : 0;
  return total > 0 ? Math.min((done + now) / total, 1) : 0;
}

function epochText(run) {
  const step = run.state === 'running' && run.epoch > run.done && run.steps ? `, step ${run.step}/${run.steps}` : '';
  return `${run.epoch}/${run.epochs}${step}`;
}

function timeText(run) {
  const part = progressOf(run), left = run.seconds / part * (1 - part);
  const more = run.state === 'running' && live && part > 0.01 && part < 1 ? `, about ${duration(left)} left` : '';
  return duration(run.seconds) + more;
}

const runRows = new Map(); // number -> the cells that change

function newRow(run, names) {
  const box = element('input', { type: 'checkbox', checked: run.shown });
  box.addEventListener('change', () => {
    run.shown = box.checked;
    renderCurves();
  });
  const swatch = element('span', { class: 'swatch' });
  const cells = { swatch, state: element('td'), bar: element('progress', { max: 1, value: 0, 'aria-label': 'progress' }),
    epoch: element('td'), time: element('td'), values: names.map(() => element('td', { class: 'n' })) };
  const row = element('tr', {}, element('td', { class: 'name' }, element('label', {}, box, swatch,
    element('span', {}, labelOf(run)))), cells.state, cells.epoch, element('td', {}, cells.bar), cells.time,
  ...cells.values);
  return [row, cells];
}

let tableOf = '';

function renderRuns() {
  const names = [...valueNames()].slice(0, 8), key = JSON.stringify([[...runs.keys()], names]);
  if (key !== tableOf) {
    tableOf = key;
    runRows.clear();
    const head = element('tr', {}, ...['run', 'state', 'epoch', '', 'time'].map(text => element('th', {}, text)),
      ...names.map(name => element('th', { class: 'n' }, name)));
    const rows = [...runs.values()].map(run => {
      const [row, cells] = newRow(run, names);
      runRows.set(run.number, cells);
      return row;
    });
    at('runs').replaceChildren(element('thead', {}, head), element('tbody', {}, ...rows));
    renderChoice();
  }
  for (const [number, cells] of runRows) {
    const run = runs.get(number), state = stateText(run);
    cells.swatch.style.background = colorOf(colorIndex(run));
    cells.state.textContent = run.text ? `${state}: ${run.text}` : state;
    cells.state.className = run.state === 'failed' ? 'failed' : '';
    cells.epoch.textContent = epochText(run);
    cells.bar.value = run.state === 'done' ? 1 : progressOf(run);
    cells.time.textContent = timeText(run);
    cells.values.forEach((cell, i) => { cell.textContent = shown(lastValue(run, names[i])); });
  }
}

function renderChoice() {
  const select = at('chosen'), before = select.value, latest = String((newest() || {}).number);
  const follows = before === '' || before === select.dataset.latest;
  select.replaceChildren(...[...runs.values()].map(run => element('option', { value: String(run.number) },
    labelOf(run))));
  select.value = follows ? latest : before;
  select.dataset.latest = latest;
}

// ---- curves ----

const curveCharts = new Map(); // name of a value -> chart

function linesOf(name) {
  const list = shownRuns(), several = list.length > 1, lines = [];
  for (const run of list) {
    const prefix = several ? `${labelOf(run)} · ` : '', color = several ? colorIndex(run) : 0;
    const batches = run.batches.get(name), training = run.ended.get(name), validation = run.ended.get(`val_${name}`);
    if (view.batches && batches) {
      lines.push({ key: `b${run.number}`, label: `${prefix}within epochs`, color, points: batches, thin: true });
    }
    if (training) lines.push({ key: `e${run.number}`, label: `${prefix}training`, color, points: training });
    if (validation) {
      lines.push({ key: `v${run.number}`, label: `${prefix}validation`, color: several ? color : 1, points: validation,
        dashed: true });
    }
  }
  return lines;
}

function nowText(name) {
  const run = newest(), texts = [];
  for (const each of [name, `val_${name}`]) {
    const value = run && lastValue(run, each);
    if (value !== undefined) texts.push(shown(value));
  }
  return texts.join(' / ');
}

function renderCurves() {
  const all = valueNames();
  for (const name of all) {
    if (name.startsWith('val_') && all.has(name.slice(4))) continue;
    if (!curveCharts.has(name)) {
      curveCharts.set(name, new Chart(at('curves'), name, { lines: () => linesOf(name), now: () => nowText(name) }));
    }
  }
  curveCharts.forEach(chart => chart.update());
}

// ---- one run: times and memory ----

let partsChart = null, memoryChart = null, timesOf = '';

function mapLines(map) {
  return [...map].map(([name, points], i) => ({ key: name, label: name, color: i, points }));
}

function table(heads, rows, numeric) {
  const cells = (row, tag) => element('tr', {}, ...row.map((text, i) => element(tag, { class: i >= numeric ? 'n' : '' },
    String(text))));
  const head = heads.length ? [element('thead', {}, cells(heads, 'th'))] : [];
  return element('div', { class: 'wide' }, element('table', {}, ...head, element('tbody', {},
    ...rows.map(row => cells(row, 'td')))));
}

// The parts of a step's time: lately, and over the whole run.
function partRows(run) {
  const { steps, parts } = run.partsNow, all = [...run.partSums.values()].reduce((sum, v) => sum + v, 0) || 1;
  return parts.filter(([name]) => run.partSums.get(name) > 0).map(([name, seconds]) => {
    const sum = run.partSums.get(name);
    return [name, duration(Number(seconds) / steps), duration(sum / run.partSteps), `${(sum / all * 100).toFixed(1)} %`];
  });
}

function renderDetails() {
  const run = chosenRun();
  if (!run || run.parts.size === 0) {
    if (partsChart && run) [partsChart, memoryChart].forEach(chart => chart.update());
    if (run) at('times').replaceChildren(element('p', { class: 'soft' }, 'There are no times of this run.'));
    timesOf = '';
    return;
  }
  if (!partsChart) {
    partsChart = new Chart(at('details'), 'Time of a step', { stacked: true, fromZero: true, format: duration,
      lines: () => mapLines((chosenRun() || run).parts).filter(line => line.points.values.some(v => v > 0)) });
    memoryChart = new Chart(at('details'), 'Memory in use', { fromZero: true, format: bytes, unit: n => bytesUnit(n)[1],
      lines: () => mapLines((chosenRun() || run).memory) });
  }
  partsChart.update();
  memoryChart.update();
  const key = `${run.number} ${run.seconds} ${run.parts.values().next().value.values.length}`;
  if (key === timesOf) return;
  timesOf = key;
  const memory = run.memoryNow.map(([name, used, peak, limit]) => [String(name), bytes(Number(used)),
    Number(peak) ? bytes(Number(peak)) : '', Number(limit) ? bytes(Number(limit)) : '']);
  at('times').replaceChildren(
    element('div', {}, table(['part of a step', 'now', 'mean', 'share'], partRows(run), 1)),
    element('div', {}, table(['memory', 'in use', 'at most', 'limit'], memory, 1)));
}

// ---- weights ----

let ridges = null;

function renderHistograms() {
  const run = chosenRun(), names = run ? [...run.histograms.keys()] : [];
  at('s-histograms').hidden = names.length === 0;
  if (names.length === 0) return;
  const select = at('weight'), before = select.value;
  if (select.dataset.names !== JSON.stringify(names)) {
    select.dataset.names = JSON.stringify(names);
    select.replaceChildren(...names.map(name => element('option', { value: name }, name)));
    select.value = names.includes(before) ? before : names[0];
  }
  ridges = ridges || new Ridges(at('histograms'));
  const list = run.histograms.get(select.value) || [];
  if (ridges.list && ridges.name === select.value && ridges.of === run && ridges.count === list.length) return;
  ridges.of = run;
  ridges.count = list.length;
  ridges.show(select.value, list);
}

// ---- pictures ----

const frames = new Map(); // title -> {image, slider, caption, count}

function newFrame(title) {
  const image = element('img', { alt: title }), slider = element('input', { type: 'range', min: '0', max: '0', step: '1',
    value: '0', 'aria-label': `which of the pictures called ${title}` });
  const caption = element('span', { class: 'soft' }), frame = { image, slider, caption, count: 0 };
  slider.addEventListener('input', () => showPicture(title, frame));
  image.addEventListener('load', () => image.classList.toggle('small', frame.png && image.naturalWidth < 128));
  at('pictures').append(element('figure', {}, element('figcaption', {}, element('span', {}, title), caption), image,
    slider));
  return frame;
}

function showPicture(title, frame) {
  const picture = pictures.get(title)[Number(frame.slider.value)];
  frame.png = picture.png;
  frame.image.src = picture.source;
  frame.caption.textContent = picture.run ? `epoch ${picture.epoch}` : clock(picture.time);
}

function renderPictures() {
  at('s-pictures').hidden = pictures.size === 0;
  for (const [title, list] of pictures) {
    if (!frames.has(title)) frames.set(title, newFrame(title));
    const frame = frames.get(title);
    if (frame.count === list.length) continue;
    const follows = Number(frame.slider.value) >= frame.count - 1;
    frame.slider.max = String(list.length - 1);
    if (follows) frame.slider.value = String(list.length - 1);
    frame.slider.hidden = list.length < 2;
    frame.count = list.length;
    showPicture(title, frame);
  }
}

// ---- model, messages ----

let modelOf = null;

function renderModel() {
  const run = chosenRun();
  if (run === modelOf) return;
  modelOf = run;
  const parts = [];
  if (run && run.graph && /^[A-Za-z0-9+/=]*$/.test(run.graph)) {
    const image = element('img', { alt: `the graph of ${run.name}`, src: `data:image/svg+xml;base64,${run.graph}` });
    parts.push(element('details', {}, element('summary', {}, 'Graph'), element('div', { class: 'graph' }, image)));
  }
  for (const each of run ? run.tables : []) {
    const [title, heads, rows] = each;
    parts.push(element('details', { open: title === 'Layers' }, element('summary', {}, String(title)),
      table(heads.map(String), rows, heads.length ? 3 : 9)));
  }
  at('model').replaceChildren(...parts);
}

let said = 0, dropped = null; // how many messages are in the list; the first of them

function renderMessages() {
  const list = at('messages'), bottom = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
  if (dropped !== messages[0] || said > messages.length) {
    list.replaceChildren();
    said = 0;
  }
  dropped = messages[0];
  for (; said < messages.length; said++) {
    const { kind, time, text } = messages[said];
    list.append(element('li', { class: kind }, element('time', {}, clock(time)), element('span', { class: 'text' },
      kind === 'warning' ? `warning: ${text}` : text)));
  }
  at('no-messages').hidden = messages.length > 0;
  if (bottom) list.scrollTop = list.scrollHeight;
}
