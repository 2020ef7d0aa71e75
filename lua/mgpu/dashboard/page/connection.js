// Following the log of events over HTTP: the page asks for what comes after what it has, and waits for it.
//
// The address is relative, so that any tunnel or proxy works. A browser that slept, and a connection that was lost, ask
// again from where they were.

const token = new URLSearchParams(location.search).get('token') || '';
const WAIT = 25; // seconds that the server may wait for news
const once = location.hash === '#once'; // asks once, for tests
let live = location.protocol.startsWith('http');
let lost = null; // why there is no answer, and since when
let from = 0; // the offset of the next byte of the log
let heard = 0; // when the last answer came
let asking = null; // what cancels the request that waits
let woken = false; // whether it was cancelled to be made anew
const decoder = new TextDecoder();
let rest = ''; // of a line that has not come whole

function pause(seconds) { return new Promise(resolve => { setTimeout(resolve, seconds * 1000); }); }

// Asks once. Returns the new text; throws if there is no answer.
async function ask() {
  asking = new AbortController();
  const timer = setTimeout(() => asking.abort(), (WAIT + 15) * 1000);
  try {
    const query = new URLSearchParams({ token, from: String(from), wait: String(once || lost ? 0 : WAIT) });
    const answer = await fetch(`events?${query}`, { cache: 'no-store', signal: asking.signal });
    if (answer.status === 401 || answer.status === 403) throw new Error('another job answers at this address');
    if (!answer.ok) throw new Error(`the answer is ${answer.status}`);
    const next = Number(answer.headers.get('X-Next')), body = await answer.arrayBuffer();
    if (!Number.isFinite(next)) throw new Error('the answer has no X-Next');
    from = next;
    return decoder.decode(body, { stream: true });
  } finally {
    clearTimeout(timer);
  }
}

function takeText(text) {
  text = rest + text;
  const end = text.lastIndexOf('\n') + 1;
  rest = text.slice(end);
  if (end > 0) takePiece(text.slice(0, end));
}

async function follow() {
  let failures = 0;
  while (!job.ended) {
    try {
      const text = await ask(), wasLost = lost !== null;
      heard = Date.now();
      lost = null;
      failures = 0;
      if (text !== '' || wasLost) {
        takeText(text);
        render();
      } else {
        renderStatus();
      }
      if (once) break;
    } catch (problem) {
      if (once) break;
      if (woken) {
        woken = false;
        continue;
      }
      failures++;
      const why = problem instanceof Error && problem.message.startsWith('another') ? problem.message : '';
      lost = lost || { since: Date.now() };
      lost.why = why;
      render();
      await pause(Math.min(10, 2 ** failures / 2));
    }
  }
  if (job.ended) live = false;
  render();
}

// After sleep the request that waits may be dead: it is made anew.
function wakeUp() {
  if (document.visibilityState === 'visible' && asking && Date.now() - heard > 5000) {
    woken = true;
    asking.abort();
  }
}

function lostText() {
  const since = new Date(lost.since).toLocaleTimeString();
  if (lost.why) return `No answer since ${since}: ${lost.why}. The page shows what it has.`;
  return `No answer since ${since}: the job was killed, or the connection is lost. Trying again.`;
}

function statusText() {
  const where = job.host ? ` on ${job.host}` : '', running = [...runs.values()].some(run => run.state === 'running'
    && !run.from);
  if (job.ended) return `The job${where} has ended.`;
  if (!live) return `A saved page of a job${where}, ${running ? 'which was running then' : 'between its runs'}.`;
  if (lost) return lostText();
  const last = newest(), quiet = last && last.state === 'running' && last.heard ? (Date.now() - last.heard) / 1000 : 0;
  if (quiet > 5) return `Live${where}. The last news of a step are ${duration(Math.round(quiet))} old.`;
  return running ? `Live${where}.` : `Live${where}. No training is under way.`;
}

function renderStatus() {
  const text = statusText(), status = at('status');
  if (status.textContent !== text) status.textContent = text;
  status.className = job.ended || !live ? '' : lost ? 'lost' : 'live';
}
