// The sessions of a model: the tree of their forks, two of them side by side, their states. A model
// that draws has its picture here as well, a session that goes on row by row.
import { h, svg, button, card, choiceField, numberField, valueOf, seedOf, errorBox, announce, number, bytes, download, freshId } from './ui.js';
import { Tree } from './branches.js';
import { TokenView } from './tokens.js';
import { Picture } from './picture.js';
import { StatePanel } from './state.js';

const kRow = 40;        // height of a branch in the tree, in pixels
const kTreeWidth = 260;
const kRowsAtOnce = 4;  // of a picture
const kContinued = 60;  // values of both branches that are compared

// What a branch has come to, as text or as a picture.
class Content {
  constructor(model) {
    this.model = model;
    if (model.image) {
      this.picture = new Picture(model.image);
      this.element = h('div', { className: 'drawing' }, this.picture.canvas);
      this.picture.canvas.setAttribute('role', 'img');
      this.picture.canvas.setAttribute('aria-label', 'The picture so far');
    } else {
      this.view = new TokenView();
      this.element = this.view.element;
    }
  }

  show(branch, common = 0) {
    if (this.view) return this.view.show(branch?.tokens ?? [], common);
    const scale = 255 / (this.model.vocabulary - 1);
    this.picture.known = 0;
    this.picture.bytes.fill(0);
    if (!branch) return this.picture.paint();
    this.picture.setBytes(branch.first, branch.tokens.map((token) => Math.round(token.id * scale)));
    return this.picture.paint(this.picture.known, true);
  }
}

// A picture that a session draws, some rows at a time.
class DrawingPanel {
  constructor(model) {
    this.model = model;
    this.tree = new Tree(model);
    this.control = null;
    this.content = new Content(model);
    this.error = errorBox();
    this.seed = numberField('Seed', { min: 0, step: 1, placeholder: 'any' });
    this.begin = button('New picture', () => this.guard(async (signal) => this.extend(await this.tree.start(), kRowsAtOnce, signal)), 'primary');
    this.rows = button(`Draw ${kRowsAtOnce} rows`, () => this.go(kRowsAtOnce));
    this.all = button('Draw to the end', () => this.go(model.image.height));
    this.stop = button('Stop', () => this.control?.abort());
    const id = freshId('row');
    this.slider = h('input', { id, type: 'range', min: 1, step: 1, oninput: () => this.describe() });
    this.fork = button('Fork here', () => this.at((branch, position) => this.tree.fork(branch, position)));
    this.back = button('Go back to here', () => this.at((branch, position) => this.tree.goBack(branch, position)));
    this.element = card('One picture, as a session', h('p', { className: 'note' }, 'Draw a few rows, fork, and let the branches go separate ways. The rows above are never read again.'),
      h('div', { className: 'pad-and-sheet' }, this.content.element, h('div', {},
        h('div', { className: 'controls' }, this.seed, this.begin, this.rows, this.all, this.stop),
        h('div', { className: 'controls' }, h('div', { className: 'field grow' }, h('label', { for: id }, 'After row'), this.slider), this.fork, this.back),
        this.error)));
    this.tree.addEventListener('change', () => this.update());
    this.update();
  }

  get rowSize() {
    return this.model.image.width * this.model.image.channels;
  }

  go(rows) {
    return this.guard((signal) => this.extend(this.tree.current, rows, signal));
  }

  at(act) {
    return this.guard(() => act(this.tree.current, Number(this.slider.value) * this.rowSize));
  }

  async extend(branch, rows, signal) {
    const max = Math.min(rows * this.rowSize, this.rowSize * this.model.image.height - branch.position);
    if (max > 0) await this.tree.extend(branch, { max, options: { seed: seedOf(this.seed) } }, signal, () => this.content.show(branch));
  }

  describe() {
    this.slider.setAttribute('aria-valuetext', `row ${this.slider.value} of ${this.model.image.height}`);
  }

  update() {
    const branch = this.tree.current;
    const isBusy = this.control !== null;
    const isDone = branch && branch.position >= this.rowSize * this.model.image.height;
    this.content.show(branch);
    this.begin.disabled = isBusy;
    this.stop.disabled = !isBusy;
    for (const each of [this.rows, this.all]) each.disabled = isBusy || !branch || isDone;
    const drawn = branch ? Math.floor(branch.position / this.rowSize) : 0;
    for (const each of [this.fork, this.back, this.slider]) each.disabled = isBusy || drawn < 1;
    this.slider.max = Math.max(1, drawn);
    if (!isBusy) this.slider.value = drawn;
    this.describe();
  }

  async guard(run) {
    if (this.control) return;
    this.control = new AbortController();
    this.error.clear();
    this.update();
    try {
      await run(this.control.signal);
    } catch (error) {
      this.error.show(error);
    } finally {
      this.control = null;
      this.update();
    }
  }
}

// Values that two branches begin with alike.
function commonOf(a, b) {
  let common = 0;
  while (common < Math.min(a.tokens.length, b.tokens.length) && a.tokens[common].id === b.tokens[common].id) common += 1;
  return a.first === b.first ? common : 0;
}

class ComparePanel {
  constructor(tree, guard, options) {
    this.tree = tree;
    this.options = options;
    this.sides = [0, 1].map(() => ({ choice: choiceField('Branch', [], ''), content: new Content(tree.model), note: h('p', { className: 'note' }) }));
    for (const side of this.sides) side.choice.input.addEventListener('change', () => this.update());
    this.both = button('Continue both, with one seed', () => guard((signal) => this.run(signal)));
    this.element = h('details', { className: 'compare' }, h('summary', {}, 'Compare two branches'),
      h('div', { className: 'columns' }, ...this.sides.map((side) => h('div', {}, side.choice, side.content.element, side.note))), this.both);
    tree.addEventListener('change', () => this.update());
    this.update();
  }

  chosen() {
    return this.sides.map((side) => this.tree.branches.find((branch) => branch.name === side.choice.input.value));
  }

  async run(signal) {
    const options = this.options();
    const size = this.tree.model.image;
    const max = size ? kRowsAtOnce * size.width * size.channels : kContinued;
    const branches = [...new Set(this.chosen())];
    // Waits for both even if one fails: Stop has no effect on the other after this.
    const ends = await Promise.allSettled(branches.map((branch) => this.tree.extend(branch, { max, options }, signal, () => this.show())));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed) throw failed.reason;
  }

  update() {
    const names = this.tree.branches.map((branch) => branch.name);
    this.element.hidden = names.length < 2;
    if (this.element.hidden) return;
    this.sides.forEach((side, i) => {
      const select = side.choice.input;
      const before = names.includes(select.value) ? select.value : names.at(i - 2);
      select.replaceChildren(...names.map((name) => h('option', { value: name }, `Branch ${name}`)));
      select.value = before;
    });
    this.show();
  }

  show() {
    const [a, b] = this.chosen();
    const common = commonOf(a, b);
    this.sides.forEach((side, i) => {
      const branch = [a, b][i];
      side.content.show(branch, common);
      side.note.textContent = `${number(branch.position)} values, the first ${number(common)} alike`;
    });
    this.both.disabled = a.isBusy || b.isBusy;
  }
}

class TreePanel {
  constructor(tree, guard, options) {
    this.tree = tree;
    this.error = errorBox();
    this.guard = (run) => guard(async (signal) => {
      this.error.clear();
      await run(signal);
    });
    this.drawing = svg('svg', { class: 'tree', role: 'img', 'aria-label': 'Tree of forks' });
    this.list = h('ul', { className: 'branches' });
    this.empty = h('p', { className: 'note' }, 'No session yet. Whatever you write or draw as a session appears here.');
    this.delete = button('Delete', () => this.act((branch) => tree.remove(branch)));
    this.fork = button('Fork', () => this.act((branch) => tree.fork(branch)));
    this.save = button('Save state', () => this.act(async (branch) =>
      download(new Blob([await tree.save(branch)], { type: 'application/octet-stream' }), `${tree.model.id}-${branch.name}.state`)));
    const id = freshId('file');
    this.file = h('input', { id, type: 'file', accept: '.state', className: 'hidden-text', onchange: () => this.load() });
    this.compare = new ComparePanel(tree, this.guard, options);
    this.element = card('Sessions', this.empty, h('div', { className: 'forest' }, this.drawing, this.list),
      h('div', { className: 'controls' }, this.fork, this.save, h('label', { className: 'button', for: id }, 'Load state'), this.file, this.delete),
      this.error, this.compare.element);
    tree.addEventListener('change', () => this.update());
    this.update();
  }

  act(run) {
    return this.guard(() => run(this.tree.current));
  }

  load() {
    const [file] = this.file.files;
    this.file.value = '';
    if (!file) return undefined;
    return this.guard(async () => {
      await this.tree.load(await file.arrayBuffer(), `page-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`);
      announce(`The state ${file.name} is a session now.`);
    });
  }

  update() {
    const { branches, current, model } = this.tree;
    this.empty.hidden = branches.length > 0;
    for (const each of [this.delete, this.fork, this.save]) each.disabled = !current || current.isBusy;
    this.drawTree(branches, current);
    const focused = this.list.querySelector(':focus')?.value;
    this.list.replaceChildren(...branches.map((branch) => {
      const select = h('button', { type: 'button', value: branch.name, 'aria-pressed': String(branch === current), onclick: () => this.tree.select(branch) },
        h('strong', {}, branch.name), ` ${number(branch.position)} values${branch.isGone ? ', not on the server' : ''}`,
        h('span', { className: 'hidden-text' }, branch.parent ? `, forked from ${branch.parent.name} at ${branch.from}` : `, ${bytes(model.state_bytes)}`));
      select.title = branch.id;
      return h('li', {}, select);
    }));
    this.list.querySelector(`button[value="${focused}"]`)?.focus();
  }

  drawTree(branches, current) {
    const most = Math.max(...branches.map((branch) => branch.position), 1);
    const x = (position) => 10 + (position / most) * (kTreeWidth - 24);
    const y = (branch) => branches.indexOf(branch) * kRow + kRow / 2;
    this.drawing.setAttribute('viewBox', `0 0 ${kTreeWidth} ${Math.max(1, branches.length) * kRow}`);
    this.drawing.style.height = `${branches.length * kRow}px`;
    this.drawing.setAttribute('aria-label', `Tree of forks: ${branches.map((b) => (b.parent ? `${b.name} from ${b.parent.name} at ${b.from}` : b.name)).join(', ')}`);
    this.drawing.replaceChildren(...branches.flatMap((branch) => {
      const from = branch.parent ? Math.min(branch.from, branch.position) : branch.first;
      const line = branch.parent
        ? `M${x(from)} ${y(branch.parent)}V${y(branch) - 8}q0 8 8 8H${Math.max(x(branch.position), x(from) + 8)}`
        : `M${x(from)} ${y(branch)}H${x(branch.position)}`;
      const name = branch === current ? 'twig current' : 'twig';
      return [svg('path', { d: line, class: name }), svg('circle', { cx: Math.max(x(branch.position), x(from) + (branch.parent ? 8 : 0)), cy: y(branch), r: branch === current ? 6 : 4, class: name })];
    }));
  }
}

// The cards about sessions. For a model with text the tree is that of the text; `guard` runs something
// with that panel's buttons as they must be, `options` gives its settings.
export function sessionPanels(model, tree, guard, options) {
  const drawing = model.image ? new DrawingPanel(model) : null;
  const used = drawing ? drawing.tree : tree;
  const run = drawing ? (task) => drawing.guard(task) : guard;
  const settings = drawing ? () => ({ seed: seedOf(drawing.seed) }) : options;
  const forest = new TreePanel(used, run, settings);
  const state = new StatePanel(used, run);
  return {
    drawing: drawing?.element,
    forest: forest.element,
    state: state.element,
    returned: () => used.check(),
    leave: () => used.leave(),
    close: () => drawing?.control?.abort(),
  };
}
