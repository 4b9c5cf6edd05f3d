// A canvas whose upper half somebody draws, with the mouse, a finger or the keyboard.
import { h, button, freshId, motionIsReduced } from './ui.js';
import { Picture } from './picture.js';

const kInk = 255;
const kRadius = 1.25;  // of the pen, in pixels of a picture 28 wide
const kReference = 28;
const kSettled = 350;  // ms after a stroke until the drawing counts as finished

export class Pad {
  constructor(image) {
    this.picture = new Picture(image);
    this.half = Math.floor(image.height / 2);
    this.radius = (kRadius * image.width) / kReference;
    this.erases = false;
    this.isDown = false;  // the pen of the keyboard
    this.at = { x: image.width / 2, y: this.half / 2 };
    const help = freshId('help');
    this.surface = h('div', {
      className: 'pad', tabIndex: 0, role: 'application', 'aria-label': 'Drawing pad, upper half',
      'aria-describedby': help,
    }, this.picture.canvas, h('div', { className: 'lower' }, 'the model draws here'), (this.cursor = h('div', { className: 'cursor', hidden: true })));
    this.eraser = button('Eraser', () => this.setEraser(!this.erases));
    this.eraser.setAttribute('aria-pressed', 'false');
    this.element = h('div', { className: 'pad-box' }, this.surface,
      h('div', { className: 'controls tight' }, this.eraser, button('Clear', () => this.clear())),
      h('p', { id: help, className: 'note' }, 'Keys: arrows move, space puts the pen down or up, E erases, Delete clears, Enter completes.'));
    this.listen();
    this.clear();
  }

  // The bytes of the upper half, as the server takes them.
  prompt() {
    return Array.from(this.picture.bytes.subarray(0, this.half * this.picture.row_bytes));
  }

  isEmpty() {
    return this.picture.bytes.every((value) => value === 0);
  }

  clear() {
    clearTimeout(this.settling);
    this.picture.bytes.fill(0);
    this.show();
  }

  // The upper half of another picture, to begin with.
  take(picture) {
    this.picture.bytes.set(picture.bytes.subarray(0, this.half * picture.row_bytes));
    this.show();
    this.finishStroke(0);
  }

  setEraser(erases) {
    this.erases = erases;
    this.eraser.setAttribute('aria-pressed', String(erases));
  }

  show() {
    this.picture.paint(this.half * this.picture.row_bytes);
    const percent = (value, all) => `${(100 * value) / all}%`;
    this.cursor.style.left = percent(this.at.x, this.picture.width);
    this.cursor.style.top = percent(this.at.y, this.picture.height);
    this.cursor.classList.toggle('down', this.isDown);
  }

  dab(x, y) {
    const { width, channels, bytes } = this.picture;
    const reach = Math.ceil(this.radius) + 1;
    for (let row = Math.max(0, Math.floor(y - reach)); row <= Math.min(this.half - 1, y + reach); ++row) {
      for (let column = Math.max(0, Math.floor(x - reach)); column <= Math.min(width - 1, x + reach); ++column) {
        const distance = Math.hypot(column + 0.5 - x, row + 0.5 - y);
        const ink = Math.min(1, Math.max(0, this.radius + 0.5 - distance));
        for (let c = 0; c < channels; ++c) {
          const i = (row * width + column) * channels + c;
          bytes[i] = this.erases ? bytes[i] * (1 - ink) : Math.max(bytes[i], kInk * ink);
        }
      }
    }
  }

  // A line from where the pen was to (x, y).
  strokeTo(x, y) {
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(x - this.at.x, y - this.at.y)));
    for (let i = 1; i <= steps; ++i) {
      this.dab(this.at.x + ((x - this.at.x) * i) / steps, this.at.y + ((y - this.at.y) * i) / steps);
    }
    this.at = { x, y };
    this.show();
  }

  finishStroke(wait = motionIsReduced() ? 1000 : kSettled) {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.onstroke?.(), wait);
  }

  listen() {
    const place = (event) => {
      const box = this.picture.canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * this.picture.width, ((event.clientY - box.top) / box.height) * this.picture.height];
    };
    let pointer = null;
    this.surface.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || pointer !== null) return;
      pointer = event.pointerId;
      this.surface.setPointerCapture(pointer);
      clearTimeout(this.settling);
      const [x, y] = place(event);
      this.at = { x, y };
      this.dab(x, y);
      this.show();
    });
    this.surface.addEventListener('pointermove', (event) => {
      if (event.pointerId !== pointer) return;
      for (const each of event.getCoalescedEvents?.() ?? [event]) this.strokeTo(...place(each));
    });
    const lift = (event) => {
      if (event.pointerId !== pointer) return;
      pointer = null;
      this.finishStroke();
    };
    this.surface.addEventListener('pointerup', lift);
    this.surface.addEventListener('pointercancel', lift);
    this.surface.addEventListener('focus', () => (this.cursor.hidden = !this.surface.matches(':focus-visible')));
    this.surface.addEventListener('blur', () => (this.cursor.hidden = true));
    this.surface.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    if (move) this.go(...move);
    else if (event.key === ' ') this.putDown(!this.isDown);
    else if (event.key === 'Enter') this.finishStroke(0);
    else if (event.key.toLowerCase() === 'e') this.setEraser(!this.erases);
    else if (event.key === 'Delete') this.clear();
    else return;
    this.cursor.hidden = false;
    event.preventDefault();
  }

  go(dx, dy) {
    const x = Math.min(Math.max(this.at.x + dx, 0.5), this.picture.width - 0.5);
    const y = Math.min(Math.max(this.at.y + dy, 0.5), this.half - 0.5);
    if (this.isDown) {
      this.strokeTo(x, y);
      this.finishStroke();
    } else {
      this.at = { x, y };
      this.show();
    }
  }

  putDown(isDown) {
    this.isDown = isDown;
    if (isDown) this.dab(this.at.x, this.at.y);
    this.show();
    if (!isDown) this.finishStroke();
  }
}
