// The live strip: rates from the counters of the status, and their last minute as a line.
import { h, number, sharpContext, color } from './ui.js';

const kKept = 60;

const kFigures = [
  ['values', 'values per second', (d) => d.values / d.seconds, number],
  ['rows', 'rows per step', (d) => (d.steps > 0 ? d.rows / d.steps : 0), (v) => v.toFixed(1)],
  ['first', 'ms to the first value', (d) => (d.firsts > 0 ? (1000 * d.waited) / d.firsts : null), (v) => (v < 10 ? v.toFixed(1) : number(v))],
  ['sessions', 'sessions in use', (d) => d.used, number],
];

const kCounters = { values: 'values_sampled', steps: 'steps', rows: 'step_rows', firsts: 'first_values', waited: 'first_value_seconds' };

export class Strip {
  constructor(section) {
    this.last = null;
    this.figures = kFigures.map(([name, label, rate, text]) => {
      const value = h('span', { className: 'value' }, '–');
      const line = h('canvas', { 'aria-hidden': 'true' });
      section.append(h('div', { className: 'figure' }, h('div', {}, value, h('span', { className: 'label' }, label)), line));
      value.dataset.figure = name;
      return { rate, text, value, line, past: [], latest: null };
    });
  }

  // The counters of all models, as they are now.
  add(models) {
    const now = { at: performance.now(), used: 0 };
    for (const name of Object.keys(kCounters)) now[name] = 0;
    for (const model of models) {
      now.used += model.sessions - model.sessions_free;
      for (const [name, counter] of Object.entries(kCounters)) now[name] += model[counter];
    }
    const before = this.last;
    this.last = now;
    if (before === null || now.values < before.values) return;  // the first, or another server
    const change = { seconds: (now.at - before.at) / 1000, used: now.used };
    for (const name of Object.keys(kCounters)) change[name] = now[name] - before[name];
    for (const figure of this.figures) this.draw(figure, figure.rate(change));
  }

  clear() {
    this.last = null;
    for (const { value } of this.figures) value.textContent = '–';
  }

  draw(figure, value) {
    figure.latest = value ?? figure.latest;
    figure.value.textContent = figure.latest === null ? '–' : figure.text(figure.latest);
    figure.past.push(value ?? 0);
    if (figure.past.length > kKept) figure.past.shift();
    const [context, width, height] = sharpContext(figure.line);
    const most = Math.max(...figure.past, 1e-9);
    context.strokeStyle = color('--accent');
    context.lineWidth = 1.5;
    context.beginPath();
    figure.past.forEach((each, i) => {
      const x = width - ((figure.past.length - 1 - i) / (kKept - 1)) * width;
      const y = height - 2 - (each / most) * (height - 4);
      if (i === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.stroke();
  }
}
