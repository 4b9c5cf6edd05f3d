// A state file as pictures: the matrices of each layer, a tile for each head, and the last keys and
// values of layers with attention. docs/state.md has the form of the file.
import { h, button, card, numberField, valueOf, sharpContext, color, number, bytes, motionIsReduced } from './ui.js';

const kMagic = 'RNLSTATE';
const kHeaderAt = 16;
const kChecksum = 4;
const kGap = 1;         // between tiles, in pixels of the picture
const kMostBytes = 64 << 20;  // of a state that the page looks at
const kMostHeads = 64;  // shown of a layer
const kMostPositions = 64;  // shown of a cache of attention
const kMostNorms = 400;  // kept of a branch
const kRight = 20;       // of the line of norms, for the number of the layer
const kTints = [[208, 90, 24], [24, 120, 190]];  // of negative and positive numbers

// The numbers of a part, by the name of its type. A number of bf16 is the upper half of one of fp32.
const kReaders = {
  f32: { size: 4, read: (buffer) => new Float32Array(buffer) },
  bf16: { size: 2, read: (buffer) => new Float32Array(Uint32Array.from(new Uint16Array(buffer), (half) => half << 16).buffer) },
};

// The header of a state file and its parts: {name, shape, numbers}.
export function parseState(buffer) {
  const view = new DataView(buffer);
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, kMagic.length));
  if (magic !== kMagic) throw new Error('This is not a state file: it does not begin with RNLSTATE.');
  const size = view.getUint32(kHeaderAt - 4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, kHeaderAt, size)));
  let at = kHeaderAt + size;
  const parts = header.parts.map(({ name, type, shape }) => {
    const reader = kReaders[type];
    if (!reader) throw new Error(`The part ${name} of the state has numbers of type ${type}, which this page cannot read. Reload the page: it may be older than the server.`);
    const end = at + reader.size * shape.reduce((a, b) => a * b, 1);
    const numbers = reader.read(buffer.slice(at, end));
    at = end + kChecksum;
    return { name, shape, numbers };
  });
  return { header, parts };
}

// What the server has to send of the state of a session. One with attention grows to `state_bytes`.
function bytesAt(model, position) {
  const left = model.position_bytes > 0 ? Math.max(0, model.max_length - position) : 0;
  return model.state_bytes - left * model.position_bytes;
}

const short = (value) => value.toLocaleString('en-US', { maximumSignificantDigits: 3 });
const headsOf = (shape) => `${shape[0]} head${shape[0] === 1 ? '' : 's'}`;
const layerOf = (part, i) => /\d+/.exec(part.name)?.[0] ?? String(i);
const normOf = (numbers) => Math.sqrt(numbers.reduce((sum, x) => sum + x * x, 0));

// The matrices: parts with a head, rows and columns; of a model without, parts with rows and columns.
export function matricesOf(parts) {
  const cubes = parts.filter((part) => part.shape.length === 3);
  const flat = parts.filter((part) => part.shape.length === 2).map((part) => ({ ...part, shape: [1, ...part.shape] }));
  return (cubes.length > 0 ? cubes : flat).map((part) => {
    const norm = normOf(part.numbers);
    return { ...part, norm, about: `${headsOf(part.shape)} of ${part.shape[1]} by ${part.shape[2]}, norm ${short(norm)}` };
  });
}

// The last positions of each cache of attention, from left to right, as matrices like the others. The
// file has keys as [pages, heads, size, positions] and values as [pages, heads, positions, size].
export function cachesOf(parts, positions) {
  const shown = Math.min(positions, kMostPositions);
  return parts.filter((part) => shown > 0 && part.shape.length === 4).map(({ name, shape, numbers }) => {
    const isKeys = name.endsWith('.keys');
    const heads = shape[1];
    const [size, page] = isKeys ? [shape[2], shape[3]] : [shape[3], shape[2]];
    const last = new Float32Array(heads * size * kMostPositions);
    for (let head = 0; head < heads; ++head) {
      for (let row = 0; row < size; ++row) {
        for (let column = 0; column < shown; ++column) {
          const position = positions - shown + column;
          const begin = (Math.floor(position / page) * heads + head) * size * page;
          const at = isKeys ? row * page + (position % page) : (position % page) * size + row;
          last[(head * size + row) * kMostPositions + column] = numbers[begin + at];
        }
      }
    }
    const drawn = [heads, size, kMostPositions];
    const about = `${headsOf(drawn)} of ${size}, the last ${shown} of ${number(positions)} positions`;
    return { name, shape: drawn, numbers: last, about };
  });
}

// The norms of a branch. If there are too many, every second one goes; the first and the last stay.
export function thinned(norms) {
  return norms.length > kMostNorms ? norms.filter((_, i) => (norms.length - 1 - i) % 2 === 0) : norms;
}

// Each head beside the other, as strong as its numbers are next to the part's largest.
function paint(canvas, { shape, numbers }) {
  const [heads, rows, columns] = [Math.min(shape[0], kMostHeads), shape[1], shape[2]];
  canvas.width = heads * (columns + kGap) - kGap;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  const pixels = context.createImageData(canvas.width, rows);
  const most = numbers.reduce((m, x) => Math.max(m, Math.abs(x)), 1e-30);
  for (let head = 0; head < heads; ++head) {
    for (let row = 0; row < rows; ++row) {
      for (let column = 0; column < columns; ++column) {
        const x = numbers[(head * rows + row) * columns + column] / most;
        const tint = kTints[x < 0 ? 0 : 1];
        const at = 4 * (row * canvas.width + head * (columns + kGap) + column);
        pixels.data.set(tint, at);
        pixels.data[at + 3] = Math.round(255 * Math.abs(x) ** 0.5);
      }
    }
  }
  context.putImageData(pixels, 0, 0);
}

function layerFigure(part) {
  const canvas = h('canvas', { className: 'matrix', role: 'img', 'aria-label': `${part.name}: ${part.about}` });
  paint(canvas, part);
  return h('figure', {}, canvas, h('figcaption', {}, `${part.name} · ${part.about}`));
}

// The norm of each layer against the position.
function drawNorms(canvas, norms) {
  const [context, width, height] = sharpContext(canvas);
  if (norms.length === 0) return;
  const left = 44;
  const bottom = 18;
  const first = norms[0].position;
  const last = Math.max(norms.at(-1).position, first + 1);
  const most = Math.max(...norms.flatMap((norm) => norm.layers), 1e-9);
  const x = (position) => left + ((position - first) / (last - first)) * (width - left - kRight);
  const y = (norm) => height - bottom - (norm / most) * (height - bottom - 8);
  context.font = '11px system-ui, sans-serif';
  context.fillStyle = color('--muted');
  context.fillText(short(most), 2, 14);
  context.fillText('0', 2, height - bottom);
  context.fillText(`position ${number(first)}`, left, height - 4);
  const end = number(last);
  context.fillText(end, width - kRight - context.measureText(end).width, height - 4);
  const layers = norms[0].layers.length;
  for (let layer = 0; layer < layers; ++layer) {
    context.strokeStyle = `hsl(${190 + (140 * layer) / layers} 60% 50%)`;
    context.fillStyle = context.strokeStyle;
    context.lineWidth = 1.5;
    context.beginPath();
    norms.forEach((norm, i) => (i === 0 ? context.moveTo(x(norm.position), y(norm.layers[layer])) : context.lineTo(x(norm.position), y(norm.layers[layer]))));
    context.stroke();
    context.fillText(norms[0].names[layer], width - kRight + 6, y(norms.at(-1).layers[layer]) + 4);
    for (const norm of norms) context.fillRect(x(norm.position) - 1.5, y(norm.layers[layer]) - 1.5, 3, 3);
  }
}

const kKept = 'All that the model keeps of the past: one matrix for each head, orange below zero, blue above. It never grows.';
const kKeptWithAttention = 'All that the model keeps of the past, orange below zero, blue above. A layer with attention keeps keys and values of every position, so the state grows. Each other layer keeps one matrix for each head.';

export class StatePanel {
  // `guard` runs something with the buttons as they must be meanwhile.
  constructor(tree, guard) {
    this.tree = tree;
    this.every = numberField('Look after every', { min: 1, max: 4096, step: 1, value: tree.model.image ? tree.model.image.width * tree.model.image.channels : 8 });
    this.watch = h('input', { type: 'checkbox', onchange: () => this.setWatch() });
    this.every.input.addEventListener('change', () => this.setWatch());
    this.look = button('Look at the state', () => guard(() => this.show(tree.current)));
    this.figures = h('div', { className: 'matrices' });
    this.norms = h('canvas', { className: 'norms', role: 'img', 'aria-label': 'Norm of each layer against the position' });
    this.normsBox = h('figure', { hidden: true }, this.norms, h('figcaption', {}, 'Norm of each layer’s matrices, by position; the number is the layer'));
    this.element = card('State', h('p', { className: 'note' }, tree.model.position_bytes > 0 ? kKeptWithAttention : kKept),
      h('div', { className: 'controls' }, this.look, h('label', { className: 'check' }, this.watch, ' Watch while it runs'), this.every),
      this.figures, this.normsBox);
    tree.addEventListener('change', () => this.update());
    this.update();
  }

  setWatch() {
    const every = Math.max(1, valueOf(this.every) ?? 1);
    this.tree.watcher = this.watch.checked ? { every, look: (branch) => (this.isLarge(branch) ? undefined : this.show(branch)) } : null;
  }

  isLarge(branch) {
    return bytesAt(this.tree.model, branch?.position ?? 0) > kMostBytes;
  }

  update() {
    const branch = this.tree.current;
    const isLarge = this.isLarge(branch);
    this.look.disabled = !branch || branch.isBusy || isLarge;
    this.watch.disabled = isLarge;
    this.look.textContent = isLarge ? `${bytes(bytesAt(this.tree.model, branch?.position ?? 0))}, too large to show` : 'Look at the state';
    if (branch !== this.shown) {
      this.figures.replaceChildren();
      this.shown = branch;
    }
    const norms = branch?.norms ?? [];
    this.normsBox.hidden = norms.length < 2 || norms[0].layers.length === 0;
    if (!this.normsBox.hidden) drawNorms(this.norms, norms);
  }

  async show(branch) {
    const { header, parts } = parseState(await this.tree.save(branch));
    const matrices = matricesOf(parts);
    const norm = { position: header.position, layers: matrices.map((part) => part.norm), names: matrices.map(layerOf) };
    branch.norms = thinned([...branch.norms.filter((each) => each.position < header.position), norm]);
    if (branch === this.tree.current) {
      const positions = Math.max(0, header.position - 1);  // the state has not consumed the last value
      this.figures.replaceChildren(...[...matrices, ...cachesOf(parts, positions)].map(layerFigure));
    }
    this.update();
    if (!motionIsReduced()) await new Promise((go) => requestAnimationFrame(go));
  }
}
