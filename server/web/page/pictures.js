// The panels of a model that draws: a sheet of pictures that draw themselves, and a pad whose upper
// half is completed.
import { stream } from './api.js';
import { h, button, card, choiceField, numberField, valueOf, seedOf, errorBox, announce, number, download, motionIsReduced } from './ui.js';
import { Picture, pngOf } from './picture.js';
import { Pad } from './pad.js';
import { Player } from './player.js';
import { sessionPanels } from './sessions.js';

const kCompletions = 6;
const kCounts = [1, 4, 9, 16, 36];
const kFirstCount = 16;
const kDrawnAtOnce = 3072;  // bytes of a picture, at most, for the page to draw before it is asked
const kPngScale = 8;

// Pictures side by side, each a button. The model draws all of them at the same time.
class Sheet {
  constructor(model, count, columns) {
    this.model = model;
    this.columns = columns;
    this.element = h('div', { className: 'sheet' });
    this.element.style.setProperty('--columns', columns);
    this.setCount(count);
  }

  // Shows this number of empty pictures. The same number as before keeps its buttons, and so the keyboard's focus.
  setCount(count) {
    if (this.pictures?.length === count) {
      for (const picture of this.pictures) picture.clear();
      return;
    }
    this.pictures = Array.from({ length: count }, () => new Picture(this.model.image));
    this.element.replaceChildren(...this.pictures.map((picture, i) => h('button', {
      type: 'button', className: 'picture', 'aria-label': `Picture ${i + 1}: complete its upper half`,
      onclick: () => this.onpick?.(picture),
    }, picture.canvas)));
  }

  // Draws all pictures, which are empty. `told` hears how many values a second have come.
  async draw(prompt, options, signal, told) {
    const began = performance.now();
    let drawn = 0;
    const given = prompt.length / this.pictures[0].row_bytes;
    const body = { model: this.model.id, n: this.pictures.length, rows: true, prompt: prompt.length > 0 ? prompt : '', ...options };
    const late = motionIsReduced();
    await stream('/v1/images/generations', body, signal, (event) => {
      if (event.type !== 'image_generation.row') return;
      const picture = this.pictures[event.index];
      picture.setRow(event.row, event.b64_bytes);
      if (late && picture.known < picture.size) picture.paint(0);
      if (event.row >= given) drawn += picture.row_bytes;
      told(drawn / Math.max(performance.now() - began, 1) * 1000);
    });
  }
}

// Buttons that start a run and stop it.
function runner(label, run, error) {
  let control = null;
  const go = button(label, () => start(), 'primary');
  const stop = button('Stop', () => control?.abort());
  stop.disabled = true;
  async function start() {
    control?.abort();
    const mine = new AbortController();
    control = mine;
    error.clear();
    stop.disabled = false;
    try {
      await run(mine.signal);
    } catch (e) {
      if (control === mine) error.show(e);
    } finally {
      if (control === mine) {
        control = null;
        stop.disabled = true;
      }
    }
  }
  return { go, stop, start, abort: () => control?.abort() };
}

function drawPanel(model, onpick) {
  const error = errorBox();
  const first = kCounts.findLast((n) => n <= Math.min(kFirstCount, model.sessions)) ?? 1;
  const count = choiceField('Pictures', kCounts.map((n) => [n, n]), first);
  const temperature = numberField('Temperature', { min: 0, max: 4, step: 0.1, value: 1 });
  const seed = numberField('Seed', { min: 0, step: 1, placeholder: 'any' });
  const speed = h('p', { className: 'note speed' }, 'Each row appears as soon as it is sampled.');
  const sheet = new Sheet(model, first, Math.ceil(Math.sqrt(first)));
  sheet.onpick = onpick;
  const player = new Player();
  const save = button('Save as PNG', async () =>
    download(await pngOf(sheet.pictures, sheet.columns, kPngScale), `${model.id}.png`));
  const run = runner('Draw', async (signal) => {
    const used = seedOf(seed);
    const wanted = Number(count.input.value);
    sheet.columns = Math.ceil(Math.sqrt(wanted));
    sheet.element.style.setProperty('--columns', sheet.columns);
    player.close();
    sheet.setCount(wanted);
    let rate = 0;
    const options = { seed: used, temperature: valueOf(temperature) };
    await sheet.draw([], options, signal, (r) => {
      rate = r;
      speed.textContent = `${number(rate)} values per second, seed ${used}`;
    });
    player.open(sheet.pictures);
    announce(`${wanted === 1 ? '1 picture is' : `${wanted} pictures are`} drawn, at ${number(rate)} values per second.`);
  }, error);
  const element = card('Draw', h('div', { className: 'controls' }, count, temperature, seed, run.go, run.stop, save),
    error, sheet.element, speed, player.element);
  return { element, run, player, sheet };
}

function completePanel(model) {
  const error = errorBox();
  const pad = new Pad(model.image);
  const count = Math.min(kCompletions, model.sessions);
  const sheet = new Sheet(model, count, 3);
  const seed = numberField('Seed', { min: 0, step: 1, placeholder: 'any' });
  const speed = h('p', { className: 'note speed' }, `${count} ${count === 1 ? 'way' : 'ways'} to continue your half.`);
  const player = new Player();
  const run = runner('Complete', async (signal) => {
    player.close();
    sheet.setCount(sheet.pictures.length);
    await sheet.draw(pad.prompt(), { seed: seedOf(seed) }, signal, (rate) => {
      speed.textContent = `${number(rate)} values per second`;
    });
    player.open(sheet.pictures);
    announce(`${count === 1 ? '1 completion is' : `${count} completions are`} drawn.`);
  }, error);
  pad.onstroke = () => run.start();
  sheet.onpick = (picture) => pad.take(picture);
  const save = button('Save as PNG', async () =>
    download(await pngOf(sheet.pictures, 3, kPngScale), `${model.id}-completed.png`));
  const element = card('Finish a drawing', h('p', { className: 'note' }, 'Draw in the upper half, with the mouse, a finger or the keyboard. The model reads your rows once, however many lower halves it draws.'),
    h('div', { className: 'pad-and-sheet' }, pad.element, h('div', {}, sheet.element, speed)),
    h('div', { className: 'controls' }, seed, run.go, run.stop, save), error, player.element);
  return { element, run, pad, player };
}

export function picturePanels(model) {
  const complete = completePanel(model);
  const draw = drawPanel(model, (picture) => {
    complete.pad.take(picture);
    complete.element.scrollIntoView({ behavior: motionIsReduced() ? 'auto' : 'smooth', block: 'nearest' });
  });
  const sessions = sessionPanels(model);
  const size = model.image.width * model.image.height * model.image.channels;
  return {
    elements: [h('div', { className: 'columns' }, h('div', {}, draw.element, sessions.drawing), h('div', {}, complete.element, sessions.forest)), sessions.state],
    async opened() {
      if (size > kDrawnAtOnce || motionIsReduced()) return;
      await draw.run.start();
      if (draw.sheet.pictures[0].known === size && complete.pad.isEmpty()) complete.pad.take(draw.sheet.pictures[0]);
    },
    returned: () => sessions.returned(),
    leave: () => sessions.leave(),
    close() {
      draw.run.abort();
      complete.run.abort();
      draw.player.close();
      complete.player.close();
      sessions.close();
    },
  };
}
