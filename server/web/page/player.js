// Shows pictures again, value by value and slowly: a digit is drawn in a tenth of a second.
import { h, button, choiceField, freshId, number } from './ui.js';

export class Player {
  constructor() {
    const id = freshId('at');
    this.slider = h('input', { id, type: 'range', min: 0, step: 1, oninput: () => this.show(Number(this.slider.value)) });
    this.play = button('Play slowly', () => (this.timer === null ? this.start() : this.pause()));
    this.speed = choiceField('Values per second', [[30, '30'], [120, '120'], [500, '500'], [2000, '2,000']], 120);
    this.note = h('output', { for: id });
    this.element = h('div', { className: 'player controls', hidden: true }, this.play, this.speed,
      h('div', { className: 'field grow' }, h('div', {}, h('label', { for: id }, 'Value '), this.note), this.slider));
    this.timer = null;
  }

  open(pictures) {
    this.pictures = pictures;
    this.size = pictures[0].size;
    this.slider.max = this.size;
    this.element.hidden = false;
    this.show(this.size);
  }

  close() {
    this.pause();
    this.element.hidden = true;
  }

  show(count) {
    this.at = count;
    this.slider.value = count;
    this.slider.setAttribute('aria-valuetext', `value ${number(count)} of ${number(this.size)}`);
    this.note.textContent = `${number(count)} / ${number(this.size)}`;
    for (const picture of this.pictures) picture.paint(count, true);
  }

  start() {
    if (this.at >= this.size) this.show(0);
    this.play.textContent = 'Pause';
    let before = performance.now();
    let exact = this.at;
    const step = (now) => {
      exact += (Math.max(0, now - before) / 1000) * Number(this.speed.input.value);  // the first frame may have begun before
      before = now;
      this.show(Math.min(Math.floor(exact), this.size));
      if (this.at >= this.size) this.pause();
      else this.timer = requestAnimationFrame(step);
    };
    this.timer = requestAnimationFrame(step);
  }

  pause() {
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.play.textContent = 'Play slowly';
  }
}
