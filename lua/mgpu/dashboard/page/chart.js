// A chart of curves on a canvas, with a cursor that the mouse and the arrow keys move, and a legend of switches.
//
// lines() returns what to draw: [{key, label, color (an index), points, dashed, thin}]. A curve with many points is
// drawn with the first, lowest, highest and last point of each column of pixels, which looks the same. The cursor has a
// canvas of its own, so that the curves are not drawn again when it moves.

const COLORS = 8;
const MARGIN = { left: 58, right: 12, top: 8, bottom: 24 };
const view = { axis: 'epoch', log: false, smoothing: 0, batches: true }; // of all charts of curves
const charts = new Set();

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'class') made.className = value;
    else if (key in made && typeof value !== 'string') made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

let palette = null; // the colors of the style sheet, for the reader's light or dark setting

function colors() {
  if (palette) return palette;
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  palette = { ink: of('--ink'), soft: of('--soft'), grid: of('--grid'), paper: of('--paper'), curves: [] };
  for (let i = 1; i <= COLORS; i++) palette.curves.push(of(`--c${i}`));
  return palette;
}

function colorOf(index) { return colors().curves[index % COLORS]; }

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  palette = null;
  charts.forEach(chart => chart.update(true));
});

// The index of the point whose x is nearest; xs ascend.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

// Exponential moving average, without the bias of its beginning. What is not finite is left as it is.
function smoothed(points, weight) {
  if (weight === 0 || points.values.length < 3) return points.values;
  const cached = points.smooth;
  if (cached && cached.weight === weight && cached.values.length === points.values.length) return cached.values;
  let mean = 0, scale = 0;
  const values = points.values.map(v => {
    if (!Number.isFinite(v)) return v;
    mean = mean * weight + v * (1 - weight);
    scale = scale * weight + (1 - weight);
    return mean / scale;
  });
  points.smooth = { weight, values };
  return values;
}

class Chart {
  constructor(parent, title, options) {
    this.options = options;
    this.hidden = new Set();
    this.cursor = null;
    this.now = element('span', { class: 'soft' });
    this.canvas = element('canvas', { 'aria-hidden': 'true' });
    this.overlay = element('canvas', { 'aria-hidden': 'true' });
    this.tip = element('div', { class: 'tip', hidden: true });
    this.plot = element('div', { class: 'plot', role: 'slider', tabindex: '0', 'aria-label': `${title}, a chart`,
      'aria-valuetext': 'no point is chosen' }, this.canvas, this.overlay, this.tip);
    this.legend = element('div', { class: 'legend' });
    this.title = title;
    this.figure = element('figure', {}, element('figcaption', {}, element('span', {}, title), this.now), this.plot,
      this.legend);
    parent.append(this.figure);
    this.seen = false;
    this.watcher = new IntersectionObserver(entries => {
      this.seen = entries[entries.length - 1].isIntersecting;
      this.update();
    }, { rootMargin: '200px' });
    this.watcher.observe(this.plot);
    this.sizes = new ResizeObserver(() => this.update());
    this.sizes.observe(this.plot);
    this.listen();
    charts.add(this);
  }

  remove() {
    this.watcher.disconnect();
    this.sizes.disconnect();
    this.figure.remove();
    charts.delete(this);
  }

  listen() {
    const move = event => {
      const place = this.plot.getBoundingClientRect();
      this.moveTo(this.xAt(event.clientX - place.left));
    };
    this.plot.addEventListener('pointermove', move);
    this.plot.addEventListener('pointerdown', move);
    this.plot.addEventListener('pointerleave', () => this.moveTo(null));
    this.plot.addEventListener('blur', () => this.moveTo(null));
    this.plot.addEventListener('keydown', event => this.press(event));
  }

  // ---- the cursor ----

  xAt(pixel) {
    if (!this.drawn) return null;
    const { low, high, width } = this.drawn;
    return low + (pixel - MARGIN.left) / width * (high - low);
  }

  visible() { return this.current.filter(line => !this.hidden.has(line.key) && line.points.values.length > 0); }

  press(event) {
    if (!this.drawn || event.altKey || event.ctrlKey || event.metaKey) return;
    const { low, high } = this.drawn, start = this.cursor === null;
    const at = start ? high : this.cursor, page = (high - low) / 20;
    const moves = {
      ArrowRight: () => start ? high : this.next(at, 1), ArrowUp: () => start ? high : this.next(at, 1),
      ArrowLeft: () => start ? high : this.next(at, -1), ArrowDown: () => start ? high : this.next(at, -1),
      PageUp: () => at + page, PageDown: () => at - page, Home: () => low, End: () => high, Escape: () => null,
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    const x = moves[event.key]();
    this.moveTo(x === null ? null : this.snapped(Math.min(Math.max(x, low), high)));
  }

  // The x of the next point of any line in the direction; the same where there is none.
  next(x, direction) {
    let best = null;
    for (const line of this.visible()) {
      const xs = line.points[this.axis()], at = nearest(xs, x);
      for (let i = Math.max(0, at - 1); i <= Math.min(xs.length - 1, at + 1); i++) {
        const ahead = (xs[i] - x) * direction;
        if (ahead > 1e-9 && (best === null || ahead < (best - x) * direction)) best = xs[i];
      }
    }
    return best === null ? x : best;
  }

  snapped(x) {
    let best = x, distance = Infinity;
    for (const line of this.visible()) {
      const xs = line.points[this.axis()], found = xs[nearest(xs, x)];
      if (Math.abs(found - x) < distance) [best, distance] = [found, Math.abs(found - x)];
    }
    return best;
  }

  moveTo(x) {
    this.cursor = x;
    if (!this.drawn || this.moving) return;
    this.moving = true;
    requestAnimationFrame(() => {
      this.moving = false;
      if (this.figure.isConnected && !this.waiting) this.drawCursor();
    });
  }

  // ---- drawing ----

  smoothing() { return this.options.fromZero ? 0 : view.smoothing; }

  axis() { return this.options.axis || view.axis; }

  update(now) {
    if (this.waiting || !this.seen && !now) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.figure.isConnected) this.draw();
    });
  }

  draw() {
    this.current = this.options.lines();
    this.drawLegend();
    const { clientWidth: wide, clientHeight: tall } = this.plot;
    if (wide === 0 || tall === 0) return;
    const c = this.cleared(this.canvas, wide, tall);
    const box = { width: wide - MARGIN.left - MARGIN.right, height: tall - MARGIN.top - MARGIN.bottom };
    const lines = this.visible(), range = this.options.stacked ? this.stack(lines) : this.range(lines);
    const unit = this.options.unit ? this.options.unit(range.y1) : 1;
    const y = this.options.fromZero ? zeroAxis(range.y1, 5, unit) : valueAxis(range.y0, range.y1, view.log, 5);
    const at = { x: v => MARGIN.left + (v - range.x0) / (range.x1 - range.x0) * box.width,
      y: v => MARGIN.top + (1 - y.at(v)) * box.height };
    this.drawAxes(c, box, range, y, at);
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, 0, box.width + MARGIN.right, tall - MARGIN.bottom + 1);
    c.clip();
    if (this.options.stacked) this.drawAreas(c, lines, at); else for (const line of lines) this.drawLine(c, line, at);
    c.restore();
    this.drawn = { low: range.x0, high: range.x1, width: box.width, wide, tall, lines, box, at };
    this.drawCursor();
    this.now.textContent = this.options.now ? this.options.now() : '';
  }

  // The context of a canvas of this size, empty.
  cleared(canvas, wide, tall) {
    const ratio = window.devicePixelRatio || 1, c = canvas.getContext('2d');
    if (canvas.width !== Math.round(wide * ratio)) canvas.width = Math.round(wide * ratio);
    if (canvas.height !== Math.round(tall * ratio)) canvas.height = Math.round(tall * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, wide, tall);
    return c;
  }

  // The ranges of both coordinates over the lines.
  range(lines) {
    const r = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity }, log = view.log && !this.options.fromZero;
    for (const line of lines) {
      const xs = line.points[this.axis()], values = line.points.values;
      r.x0 = Math.min(r.x0, xs[0]);
      r.x1 = Math.max(r.x1, xs[xs.length - 1]);
      for (let i = 0; i < values.length; i++) {
        const v = values[i];
        if (!(Math.abs(v) < 8e307) || log && v <= 0) continue;
        if (v < r.y0) r.y0 = v;
        if (v > r.y1) r.y1 = v;
      }
    }
    return this.widened(r);
  }

  widened(r) {
    if (!(r.x0 <= r.x1)) [r.x0, r.x1] = [0, 1];
    if (r.x0 === r.x1) [r.x0, r.x1] = [r.x0 - (this.axis() === 'epoch' ? 1 : r.x0 || 1), r.x1 || 1];
    return r;
  }

  // Sums of the lines from the first one up, which areas are between.
  stack(lines) {
    const r = { x0: Infinity, x1: -Infinity, y0: 0, y1: 0 };
    let below = null;
    for (const line of lines) {
      const xs = line.points[this.axis()], under = below;
      line.low = line.points.values.map((_, i) => under ? under[i] || 0 : 0);
      line.high = line.points.values.map((v, i) => line.low[i] + v);
      below = line.high;
      r.x0 = Math.min(r.x0, xs[0]);
      r.x1 = Math.max(r.x1, xs[xs.length - 1]);
      // the first one of several is left to be cut off: the first step is traced and planned, and takes far longer
      line.high.forEach((v, i) => { if (v > r.y1 && (i > 0 || line.high.length < 4)) r.y1 = v; });
    }
    return this.widened(r);
  }

  drawAxes(c, box, range, y, at) {
    const { grid, soft } = colors(), format = this.options.format || shown, bottom = MARGIN.top + box.height;
    c.lineWidth = 1;
    c.strokeStyle = grid;
    c.fillStyle = soft;
    c.font = '11px system-ui, sans-serif';
    c.textAlign = 'right';
    c.textBaseline = 'middle';
    for (const tick of y.ticks) {
      const where = Math.round(at.y(tick)) + 0.5;
      c.beginPath();
      c.moveTo(MARGIN.left, where);
      c.lineTo(MARGIN.left + box.width, where);
      c.stroke();
      c.fillText(format(tick), MARGIN.left - 6, where, MARGIN.left - 8);
    }
    c.textBaseline = 'top';
    c.textAlign = 'center';
    const axis = this.axis(), whole = axis !== 'time';
    for (const tick of linearTicks(range.x0, range.x1, Math.max(2, Math.floor(box.width / 90)))) {
      if (whole && tick % 1 !== 0) continue;
      const text = axis === 'time' ? duration(tick) : shown(tick), half = c.measureText(text).width / 2;
      c.fillText(text, Math.min(at.x(tick), MARGIN.left + box.width + MARGIN.right - half), bottom + 6);
    }
    c.strokeStyle = soft;
    c.beginPath();
    c.moveTo(MARGIN.left + 0.5, MARGIN.top);
    c.lineTo(MARGIN.left + 0.5, bottom + 0.5);
    c.lineTo(MARGIN.left + box.width, bottom + 0.5);
    c.stroke();
  }

  drawLine(c, line, at) {
    c.strokeStyle = c.fillStyle = colorOf(line.color);
    c.lineJoin = c.lineCap = 'round';
    c.setLineDash(line.dashed ? [6, 4] : []);
    const values = smoothed(line.points, this.smoothing());
    if (values !== line.points.values) {
      c.globalAlpha = 0.25;
      c.lineWidth = 1;
      this.trace(c, line, line.points.values, at);
    }
    c.globalAlpha = line.thin ? 0.55 : 1;
    c.lineWidth = line.thin ? 1 : 1.8;
    this.trace(c, line, values, at);
    c.setLineDash([]);
    c.lineCap = 'butt';
    if (!line.thin && values.length <= 40) this.dots(c, line, values, at);
    c.globalAlpha = 1;
  }

  // The path through the points, thinned to the columns of pixels. Values that are not finite leave a gap.
  trace(c, line, values, at) {
    const xs = line.points[this.axis()], n = values.length;
    let open = false, column = null, low = 0, high = 0, last = 0, many = false;
    const flush = () => {
      if (!many) return;
      c.lineTo(column, low);
      c.lineTo(column, high);
      c.lineTo(column, last);
      many = false;
    };
    c.beginPath();
    for (let i = 0; i < n; i++) {
      const y = at.y(values[i]);
      if (!Number.isFinite(y)) {
        flush();
        open = false;
        continue;
      }
      const x = n > 1000 ? Math.round(at.x(xs[i]) * 2) / 2 : at.x(xs[i]);
      if (!open) {
        c.moveTo(x, y);
        c.lineTo(x + 0.01, y); // which shows a point without neighbors, as a dot
        open = true;
      } else if (x !== column) {
        flush();
        c.lineTo(x, y);
      } else {
        if (!many) [low, high, many] = [last, last, true];
        if (y < low) low = y;
        if (y > high) high = y;
      }
      column = x;
      last = y;
    }
    flush();
    c.stroke();
  }

  dots(c, line, values, at) {
    const xs = line.points[this.axis()];
    for (let i = 0; i < values.length; i++) {
      const y = at.y(values[i]);
      if (!Number.isFinite(y)) continue;
      c.beginPath();
      c.arc(at.x(xs[i]), y, 2.4, 0, 7);
      c.fill();
    }
  }

  drawAreas(c, lines, at) {
    for (const line of lines) {
      const xs = line.points[this.axis()], n = xs.length;
      c.fillStyle = colorOf(line.color);
      c.globalAlpha = 0.75;
      c.beginPath();
      c.moveTo(n === 1 ? MARGIN.left : at.x(xs[0]), at.y(line.low[0]));
      for (let i = 0; i < n; i++) c.lineTo(at.x(xs[i]), at.y(line.high[i]));
      for (let i = n - 1; i >= 0; i--) c.lineTo(at.x(xs[i]), at.y(line.low[i]));
      const [top, bottom] = [at.y(line.high[0]), at.y(line.low[0])];
      if (n === 1) c.rect(MARGIN.left, top, at.x(xs[0]) - MARGIN.left, bottom - top);
      c.fill();
      c.globalAlpha = 1;
    }
  }

  // ---- the cursor and the legend ----

  drawCursor() {
    const { wide, tall, lines, box, at } = this.drawn, c = this.cleared(this.overlay, wide, tall);
    this.tip.hidden = this.cursor === null || lines.length === 0;
    this.plot.setAttribute('aria-valuemin', this.drawn.low);
    this.plot.setAttribute('aria-valuemax', this.drawn.high);
    if (this.tip.hidden) {
      this.plot.setAttribute('aria-valuenow', this.drawn.high);
      this.plot.setAttribute('aria-valuetext', 'no point is chosen');
      return;
    }
    const x = this.snapped(this.cursor), format = this.options.format || shown, axis = this.axis();
    const name = axis === 'time' ? duration(x) : `${axis} ${shown(Number(x.toFixed(2)))}`, rows = [], said = [name];
    c.strokeStyle = colors().soft;
    c.beginPath();
    c.moveTo(Math.round(at.x(x)) + 0.5, MARGIN.top);
    c.lineTo(Math.round(at.x(x)) + 0.5, MARGIN.top + box.height);
    c.stroke();
    for (const line of lines) {
      const xs = line.points[axis], i = nearest(xs, x), value = line.points.values[i];
      if (Math.abs(at.x(xs[i]) - at.x(x)) > 12) continue; // the line has no point here
      const y = at.y(this.options.stacked ? line.high[i] : smoothed(line.points, this.smoothing())[i]);
      c.fillStyle = colorOf(line.color);
      c.beginPath();
      c.arc(at.x(xs[i]), y, 3.5, 0, 7);
      c.fill();
      const swatch = element('span', { class: 'swatch' });
      swatch.style.background = colorOf(line.color);
      rows.push(element('div', {}, swatch, element('span', { class: 'label' }, line.label),
        element('span', { class: 'value' }, format(value))));
      said.push(`${line.label} ${format(value)}`);
    }
    this.tip.replaceChildren(element('strong', {}, name), ...rows);
    const right = at.x(x) > MARGIN.left + box.width / 2;
    this.tip.style.left = right ? 'auto' : `${at.x(x) + 10}px`;
    this.tip.style.right = right ? `${MARGIN.left + box.width + MARGIN.right - at.x(x) + 10}px` : 'auto';
    this.plot.setAttribute('aria-valuenow', x);
    this.plot.setAttribute('aria-valuetext', said.join(', '));
  }

  drawLegend() {
    const keys = this.current.map(line => `${line.key}\n${line.label}\n${line.color}`).join('\n\n') + palette;
    if (keys === this.legendKeys) return;
    this.legendKeys = keys;
    this.legend.hidden = this.current.length < 2;
    this.legend.replaceChildren(...this.current.map(line => {
      const kind = this.options.stacked ? 'area' : `line${line.dashed ? ' dashed' : ''}${line.thin ? ' thin' : ''}`;
      const mark = element('span', { class: this.options.stacked ? 'area' : kind });
      if (!this.options.stacked) mark.classList.add('line');
      mark.style[this.options.stacked ? 'background' : 'borderColor'] = colorOf(line.color);
      const button = element('button', { type: 'button', 'aria-pressed': String(!this.hidden.has(line.key)) }, mark,
        element('span', {}, line.label));
      button.addEventListener('click', () => {
        if (!this.hidden.delete(line.key)) this.hidden.add(line.key);
        button.setAttribute('aria-pressed', String(!this.hidden.has(line.key)));
        this.update(true);
      });
      return button;
    }));
  }
}
