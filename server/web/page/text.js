// The panels of a model that writes: a text that continues, or a list of values, each token with its
// probability and what could have come instead.
import { h, button, card, numberField, valueOf, seedOf, errorBox, announce, number, percent, shown, freshId } from './ui.js';
import { Tree } from './branches.js';
import { ChatPanel } from './chat.js';
import { TokenView } from './tokens.js';
import { sessionPanels } from './sessions.js';
import { beginningOf, wordsOf } from './values.js';

const kBeginning = 'The river was ';

// The token that is looked at: a slider for the keyboard, its alternatives as buttons.
class Inspector {
  constructor(panel) {
    this.panel = panel;
    this.at = 0;
    const id = freshId('token');
    this.slider = h('input', { id, type: 'range', min: 0, value: 0, oninput: () => this.show(Number(this.slider.value)) });
    this.what = h('p', { className: 'what' });
    this.list = h('ol', { className: 'alternatives' });
    this.fork = button('Fork here', () => panel.fork(this.at + 1));
    this.back = button('Go back to here', () => panel.goBack(this.at + 1));
    this.element = h('div', { className: 'inspector', hidden: true },
      h('div', { className: 'field grow' }, h('label', { for: id }, 'Token'), this.slider),
      this.what, this.list, h('div', { className: 'controls tight' }, this.fork, this.back));
  }

  show(i) {
    const { view, branch } = this.panel;
    const token = branch?.tokens[i];
    this.element.hidden = !token;
    if (!token) return;
    this.at = i;
    this.slider.max = branch.tokens.length - 1;
    this.slider.value = i;
    view.mark(i);
    const text = token.bytes ? shown(view.text(i)) || 'part of a character' : token.name;
    const odds = token.p === null ? 'given' : percent(token.p);
    this.slider.setAttribute('aria-valuetext', `${text}, ${odds}, position ${branch.first + i + 1}`);
    this.what.replaceChildren(h('strong', {}, text), ` ${odds} · position ${number(branch.first + i + 1)}`);
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(...token.top.map((other) => this.alternative(other, i)));
    if (hadFocus) this.slider.focus();
    const busy = branch.isBusy;
    this.fork.disabled = busy;
    this.back.disabled = busy;
  }

  alternative({ text, p }, i) {
    const label = text.startsWith('bytes:') ? 'part of a character' : shown(text);
    const take = button(label, () => this.panel.take(i, text));
    take.disabled = text.startsWith('bytes:') || this.panel.branch.isBusy;
    take.setAttribute('aria-label', `${label}, ${percent(p)}: continue with this instead`);
    const bar = h('span', { className: 'bar', 'aria-hidden': 'true' });
    bar.style.setProperty('--share', `${100 * p}%`);
    return h('li', {}, take, bar, h('span', { className: 'odds', 'aria-hidden': 'true' }, percent(p)));
  }
}

class WritePanel {
  constructor(model) {
    this.model = model;
    this.tree = new Tree(model);
    this.control = null;
    const id = freshId('prompt');
    this.prompt = h('textarea', { id, rows: 2, value: model.has_text ? kBeginning : beginningOf(model), spellcheck: false });
    this.length = numberField('Values', { min: 0, max: 4096, step: 1, value: model.has_text ? 120 : 40 });
    this.temperature = numberField('Temperature', { min: 0, max: 4, step: 0.1, value: 0.8 });
    this.top_p = numberField('Top-p', { min: 0.01, max: 1, step: 0.01, value: 1 });
    this.seed = numberField('Seed', { min: 0, step: 1, placeholder: 'any' });
    this.write = button('Write', () => this.begin(), 'primary');
    this.more = button('Continue', () => this.go(this.branch));
    this.add = button('Add and continue', () => this.go(this.branch, this.prompt.value));
    this.stop = button('Stop', () => this.control?.abort());
    this.error = errorBox();
    this.speed = h('p', { className: 'note speed' }, 'The stronger the shade, the less likely the token was. Point at one, or tap it, to see what could have come instead.');
    this.view = new TokenView();
    this.view.element.setAttribute('role', 'region');
    this.view.element.setAttribute('aria-label', 'What the model has read and written');
    this.view.element.tabIndex = 0;
    this.inspector = new Inspector(this);
    this.view.onhover = (i) => !this.isHeld && this.inspector.show(i);
    this.view.onpick = (i) => {
      this.isHeld = true;
      this.inspector.show(i);
    };
    this.view.element.addEventListener('pointerleave', () => (this.isHeld = false));
    this.element = card('Write', h('div', { className: 'field wide' }, h('label', { for: id }, model.has_text ? 'Text to read first' : `Values to read first: ${wordsOf(model)}`), this.prompt),
      h('div', { className: 'controls' }, this.length, this.temperature, this.top_p, this.seed),
      h('div', { className: 'controls' }, this.write, this.more, this.add, this.stop),
      this.error, h('div', { className: 'write' }, this.view.element, this.inspector.element), this.speed);
    this.tree.addEventListener('change', () => this.update());
    this.update();
  }

  get branch() {
    return this.tree.current;
  }

  update() {
    const branch = this.branch;
    const isBusy = this.control !== null;
    if (branch) this.view.show(branch.tokens);
    else this.view.clear();
    this.more.disabled = isBusy || !branch;
    this.add.disabled = isBusy || !branch;
    this.write.disabled = isBusy;
    this.stop.disabled = !isBusy;
    this.inspector.show(Math.min(this.inspector.at, (branch?.tokens.length ?? 0) - 1));
  }

  options() {
    return { temperature: valueOf(this.temperature), top_p: valueOf(this.top_p), seed: seedOf(this.seed) };
  }

  begin() {
    return this.guard(async (signal) => {
      const branch = await this.tree.start();
      await this.extend(branch, this.prompt.value, signal);
    });
  }

  go(branch, prompt) {
    return this.guard((signal) => this.extend(branch, prompt === '' ? undefined : prompt, signal));
  }

  fork(position) {
    return this.guard(() => this.tree.fork(this.branch, this.branch.first + position));
  }

  goBack(position) {
    return this.guard(() => this.tree.goBack(this.branch, this.branch.first + position));
  }

  // A branch in which `text` came in the place of token `i`.
  take(i, text) {
    return this.guard(async (signal) => {
      const branch = await this.tree.fork(this.branch, this.branch.first + i);
      await this.extend(branch, text, signal);
    });
  }

  async extend(branch, prompt, signal) {
    const began = performance.now();
    const options = this.options();
    let count = 0;
    await this.tree.extend(branch, { prompt, max: valueOf(this.length) ?? 0, options }, signal, (tokens) => {
      count += tokens.length;
      if (branch === this.branch) this.view.show(branch.tokens);
      this.speed.textContent = `${number((1000 * count) / Math.max(1, performance.now() - began))} values per second, seed ${options.seed}`;
    });
    announce(`${count} values are written.`);
  }

  // Runs it, with the buttons as they must be meanwhile, and shows its error.
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

export function textPanels(model) {
  const write = new WritePanel(model);
  const sessions = sessionPanels(model, write.tree, (run) => write.guard(run), () => write.options());
  const chat = model.has_chat ? new ChatPanel(model) : null;
  return {
    elements: [...(chat ? [chat.element] : []), write.element, h('div', { className: 'columns' }, sessions.forest, sessions.state)],
    returned: () => sessions.returned(),
    leave: () => sessions.leave(),
    close() {
      chat?.control?.abort();
      write.control?.abort();
      sessions.close();
    },
  };
}
