// The histograms of a weight: one ridge for each epoch that has one, the newest in front.

const MOST_RIDGES = 24;

class Ridges {
  constructor(parent) {
    this.canvas = element('canvas', { 'aria-hidden': 'true' });
    this.tip = element('div', { class: 'tip', hidden: true });
    this.plot = element('div', { class: 'plot', role: 'slider', tabindex: '0' }, this.canvas, this.tip);
    this.title = element('span', {});
    this.now = element('span', { class: 'soft' });
    this.figure = element('figure', {}, element('figcaption', {}, this.title, this.now), this.plot);
    this.chosen = null; // the index of the ridge that the keys have chosen
    parent.append(this.figure);
    this.plot.addEventListener('keydown', event => this.press(event));
    this.plot.addEventListener('blur', () => this.choose(null));
    this.plot.addEventListener('pointermove', event => this.point(event));
    this.plot.addEventListener('pointerleave', () => this.choose(null));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    charts.add(this);
  }

  show(name, list) {
    this.name = name;
    this.list = list.length <= MOST_RIDGES ? list
      : list.filter((_, i) => (list.length - 1 - i) % Math.ceil(list.length / MOST_RIDGES) === 0);
    this.title.textContent = name;
    this.plot.setAttribute('aria-label', `Histograms of ${name} by epoch`);
    this.draw();
  }

  update() { this.draw(); }

  press(event) {
    if (!this.list || this.list.length === 0) return;
    const last = this.list.length - 1, at = this.chosen === null ? last + 1 : this.chosen;
    const moves = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last,
      Escape: null };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    this.choose(moves[event.key] === null ? null : Math.min(Math.max(moves[event.key], 0), last));
  }

  point(event) {
    if (!this.list || this.list.length === 0) return;
    const place = this.plot.getBoundingClientRect(), y = event.clientY - place.top;
    let best = 0;
    this.list.forEach((_, i) => {
      if (Math.abs(this.base(i) - y) < Math.abs(this.base(best) - y)) best = i;
    });
    this.choose(best);
  }

  choose(i) {
    this.chosen = i;
    this.draw();
  }

  base(i) { // where ridge i stands
    const n = this.list.length, tall = this.plot.clientHeight, top = MARGIN.top + tall * 0.35;
    return n === 1 ? tall - MARGIN.bottom : top + (tall - MARGIN.bottom - top) * i / (n - 1);
  }

  draw() {
    const { clientWidth: wide, clientHeight: tall } = this.plot;
    if (!this.list || wide === 0 || tall === 0) return;
    const ratio = window.devicePixelRatio || 1, c = this.canvas.getContext('2d');
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(tall * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    let low = Infinity, high = -Infinity, most = 0;
    for (const h of this.list) {
      low = Math.min(low, h.low);
      high = Math.max(high, h.high);
      const width = (h.high - h.low) / h.counts.length || 1;
      h.density = h.counts.map(n => n / width / h.n);
      for (const d of h.density) most = Math.max(most, d);
    }
    if (!(low < high)) [low, high] = [low - 1, low + 1];
    const inner = wide - MARGIN.left - MARGIN.right, x = v => MARGIN.left + (v - low) / (high - low) * inner;
    this.drawAxis(c, low, high, x, tall);
    this.list.forEach((h, i) => this.drawRidge(c, h, i, x, most, tall * 0.33));
    this.describe();
  }

  drawAxis(c, low, high, x, tall) {
    c.fillStyle = colors().soft;
    c.font = '11px system-ui, sans-serif';
    c.textAlign = 'center';
    c.textBaseline = 'top';
    for (const tick of linearTicks(low, high, 4)) c.fillText(shown(tick), x(tick), tall - MARGIN.bottom + 6);
  }

  drawRidge(c, h, i, x, most, height) {
    const base = this.base(i), width = (h.high - h.low) / h.counts.length, { paper, soft } = colors();
    const front = this.chosen === null ? i === this.list.length - 1 : i === this.chosen;
    c.beginPath();
    c.moveTo(x(h.low), base);
    h.density.forEach((d, k) => c.lineTo(x(h.low + (k + 0.5) * width), base - d / (most || 1) * height));
    c.lineTo(x(h.high), base);
    c.closePath();
    c.fillStyle = front ? colorOf(0) : paper;
    c.globalAlpha = front ? 0.6 : 0.75;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = colorOf(0);
    c.lineWidth = front ? 1.8 : 1;
    c.stroke();
    const n = this.list.length;
    if (n > 12 && i % Math.ceil(n / 8) !== (n - 1) % Math.ceil(n / 8)) return;
    c.fillStyle = soft;
    c.textAlign = 'right';
    c.textBaseline = 'middle';
    c.fillText(shown(h.epoch), MARGIN.left - 8, base - 3);
  }

  describe() {
    const i = this.chosen === null ? this.list.length - 1 : this.chosen, h = this.list[i];
    if (!h) return;
    const counted = h.counts.reduce((sum, n) => sum + n, 0), width = (h.high - h.low) / h.counts.length;
    const mean = h.counts.reduce((sum, n, k) => sum + n * (h.low + (k + 0.5) * width), 0) / (counted || 1);
    const rows = [`epoch ${shown(h.epoch)}`, `from ${shown(h.low)} to ${shown(h.high)}`, `mean about ${shown(mean)}`,
      `${shown(h.n)} numbers`];
    if (counted < h.n) rows.push(`${shown(h.n - counted)} of them not finite`);
    this.now.textContent = `${shown(h.n)} numbers`;
    this.plot.setAttribute('aria-valuemin', 0);
    this.plot.setAttribute('aria-valuemax', this.list.length - 1);
    this.plot.setAttribute('aria-valuenow', i);
    this.plot.setAttribute('aria-valuetext', rows.join(', '));
    this.tip.hidden = this.chosen === null;
    this.tip.replaceChildren(...rows.map((row, k) => element(k ? 'div' : 'strong', {}, row)));
    this.tip.style.right = `${MARGIN.right}px`;
  }
}
