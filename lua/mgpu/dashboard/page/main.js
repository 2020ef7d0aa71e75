// The beginning: what the page holds already is shown, then the log is followed.

function render() {
  const title = job.script || 'mgpulua', run = newest();
  at('title').textContent = title;
  document.title = run && run.state === 'running' && live ? `${Math.round(progressOf(run) * 100)} % – ${title}` : title;
  renderRuns();
  renderStatus();
  renderCurves();
  renderDetails();
  renderHistograms();
  renderPictures();
  renderModel();
  renderMessages();
}

// The page as a file: without what the script has made, which it makes again of the events.
function pageAsText() {
  const copy = document.documentElement.cloneNode(true);
  for (const part of copy.querySelectorAll('[data-live]')) {
    part.replaceChildren();
    part.removeAttribute('data-names');
    part.removeAttribute('data-latest');
  }
  return `<!DOCTYPE html>\n${copy.outerHTML}\n`;
}

function savePage() {
  const address = URL.createObjectURL(new Blob([pageAsText()], { type: 'text/html' }));
  const name = (job.script || 'run').replace(/\.lua$/, '').replace(/[^\w.-]+/g, '_');
  element('a', { href: address, download: `${name}.html` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

function listen() {
  const redraw = () => charts.forEach(chart => chart.update(true));
  at('axis').addEventListener('change', event => {
    view.axis = event.target.value;
    redraw();
  });
  at('log').addEventListener('change', event => {
    view.log = event.target.checked;
    redraw();
  });
  at('smoothing').addEventListener('input', event => {
    view.smoothing = Number(event.target.value);
    at('smoothing-value').textContent = event.target.value;
    redraw();
  });
  at('batches').addEventListener('change', event => {
    view.batches = event.target.checked;
    redraw();
  });
  at('chosen').addEventListener('change', () => {
    [partsChart, memoryChart].forEach(chart => chart && chart.update(true));
    renderDetails();
    renderHistograms();
    renderModel();
  });
  at('weight').addEventListener('change', renderHistograms);
  at('save').addEventListener('click', savePage);
  document.addEventListener('visibilitychange', wakeUp);
  addEventListener('online', wakeUp);
  addEventListener('beforeprint', () => charts.forEach(chart => chart.draw())); // also those out of sight
}

// Of a page that a browser saved with what the script had made.
for (const part of document.querySelectorAll('[data-live]')) {
  part.replaceChildren();
  delete part.dataset.names;
  delete part.dataset.latest;
}
for (const id of ['axis', 'smoothing']) at(id).value = id === 'axis' ? 'epoch' : '0'; // which reloading may keep
at('log').checked = false;
at('batches').checked = true;
at('save').hidden = false;
from = new TextEncoder().encode(kept.textContent).length;
takeEvents(kept.textContent);
if (job.ended) live = false;
const firstRun = runs.values().next().value;
if (firstRun && firstRun.steps === 0) at('axis').value = view.axis = 'step';
listen();
render();
if (live) {
  setInterval(renderStatus, 1000);
  follow();
}
