// A conversation with a model that has a chat template. The page sends all of it with each turn; the
// server reads what is new. An edited or repeated turn is a branch: the earlier ones stay.
import { stream } from './api.js';
import { h, button, card, numberField, valueOf, seedOf, errorBox, announce, freshId, number } from './ui.js';

class Turn {
  constructor(role, content, parent) {
    this.role = role;
    this.content = content;
    this.thinking = '';
    this.note = '';
    this.isOpen = false;   // an answer that was stopped, or ended by its length
    this.parent = parent;  // null: the beginning of everything
    this.replies = [];     // one for each version
    this.chosen = -1;
  }

  add(role, content) {
    const turn = new Turn(role, content, this);
    this.replies.push(turn);
    this.chosen = this.replies.length - 1;
    return turn;
  }
}

const kNearEnd = 40;  // pixels
const kNames = { user: 'You', assistant: 'Model' };

export class ChatPanel {
  constructor(model) {
    this.model = model;
    this.root = new Turn('', '', null);
    this.control = null;
    this.editing = null;
    const id = freshId('message');
    const system = freshId('system');
    this.system = h('textarea', { id: system, rows: 2 });
    this.message = h('textarea', { id, rows: 2, onkeydown: (event) => this.press(event) });
    this.length = numberField('Values', { min: 1, max: 4096, step: 1, value: 200 });
    this.temperature = numberField('Temperature', { min: 0, max: 4, step: 0.1, value: 0.8 });
    this.top_p = numberField('Top-p', { min: 0.01, max: 1, step: 0.01, value: 1 });
    this.seed = numberField('Seed', { min: 0, step: 1, placeholder: 'any' });
    this.send = button('Send', () => this.ask(), 'primary');
    this.stop = button('Stop', () => this.control?.abort());
    this.anew = button('New conversation', () => this.clear());
    this.error = errorBox();
    this.list = h('ol', { className: 'turns', 'aria-label': 'Conversation' });
    this.element = card('Chat', h('details', {}, h('summary', {}, 'Instructions and settings'),
      h('div', { className: 'field wide' }, h('label', { for: system }, 'Instructions to the model'), this.system),
      h('div', { className: 'controls' }, this.length, this.temperature, this.top_p, this.seed)),
      this.list, this.error,
      h('div', { className: 'field wide' }, h('label', { for: id }, 'Your message'), this.message),
      h('div', { className: 'controls' }, this.send, this.stop, this.anew));
    this.show();
  }

  // The turns that are shown, from the first.
  path() {
    const turns = [];
    for (let turn = this.root; turn.chosen >= 0;) {
      turn = turn.replies[turn.chosen];
      turns.push(turn);
    }
    return turns;
  }

  press(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.ask();
  }

  ask() {
    const text = this.message.value.trim();
    if (text === '' || this.control) return undefined;
    this.message.value = '';
    const turn = (this.path().at(-1) ?? this.root).add('user', text);
    return this.answer(turn.add('assistant', ''));
  }

  // Another version of what somebody said, and its answer.
  edit(turn, text) {
    return this.answer(turn.parent.add('user', text).add('assistant', ''));
  }

  retry(turn) {
    return this.answer(turn.parent.add('assistant', ''));
  }

  clear() {
    this.control?.abort();
    this.root = new Turn('', '', null);
    this.show();
  }

  messages(last) {
    const told = [];
    for (let turn = last; turn.parent !== null; turn = turn.parent) told.unshift({ role: turn.role, content: turn.content });
    if (this.system.value.trim() !== '') told.unshift({ role: 'system', content: this.system.value });
    return told;
  }

  // Has the model write `turn`, or write it further.
  async answer(turn) {
    const continues = turn.content !== '';
    const used = seedOf(this.seed);
    const body = {
      model: this.model.id, messages: this.messages(continues ? turn : turn.parent), continue_final_message: continues,
      max_completion_tokens: valueOf(this.length), temperature: valueOf(this.temperature), top_p: valueOf(this.top_p), seed: used,
      stream_options: { include_usage: true },
    };
    this.control = new AbortController();
    this.editing = null;  // no turn can be sent while another one is answered
    this.error.clear();
    turn.isOpen = true;
    this.show();
    try {
      await stream('/v1/chat/completions', body, this.control.signal, (event) => this.take(turn, event, used));
      announce(`The model says: ${turn.content}`);
    } catch (error) {
      this.error.show(error);
    } finally {
      this.control = null;
      this.show();
    }
  }

  take(turn, event, used) {
    const [choice] = event.choices;
    turn.content += choice?.delta.content ?? '';
    turn.thinking += choice?.delta.reasoning_content ?? '';
    if (choice?.finish_reason) turn.isOpen = choice.finish_reason === 'length';
    if (event.usage) {
      const read = event.usage.prompt_tokens;
      const kept = event.usage.prompt_tokens_details?.cached_tokens ?? 0;
      turn.note = `${number(event.usage.completion_tokens)} values, seed ${used}; read ${number(read - kept)} of ${number(read)}`;
    }
    if (this.isFilling) return;
    this.isFilling = true;  // once a frame: the text of a long answer costs more than its next part
    requestAnimationFrame(() => {
      this.isFilling = false;
      this.keepEnd(() => this.fill(turn));
    });
  }

  // Changes what is shown, and keeps the end of the list in sight if it was in sight before.
  keepEnd(change) {
    const { list } = this;
    const before = list.scrollTop;
    const isAtEnd = list.scrollHeight - before - list.clientHeight < kNearEnd;
    change();
    list.scrollTop = isAtEnd ? list.scrollHeight : before;
  }

  // Shows what `turn` says by now.
  fill(turn) {
    const { said, thought } = turn.places;
    said.textContent = turn.content;
    thought.hidden = turn.thinking === '';
    thought.lastChild.textContent = turn.thinking;
  }

  show() {
    const isBusy = this.control !== null;
    this.send.disabled = isBusy;
    this.stop.disabled = !isBusy;
    this.keepEnd(() => this.list.replaceChildren(...this.path().map((turn) => this.item(turn, isBusy))));
  }

  item(turn, isBusy) {
    turn.places = {
      said: h('p', { className: 'said' }),
      thought: h('details', { className: 'thought' }, h('summary', {}, 'Thinking'), h('p', {})),
    };
    this.fill(turn);
    turn.places.versions = this.versions(turn);
    const actions = h('div', { className: 'controls tight' }, ...this.actions(turn), ...turn.places.versions);
    for (const each of actions.children) each.disabled ||= isBusy;
    const body = this.editing === turn ? this.editor(turn) : h('div', {}, turn.places.thought, turn.places.said, actions);
    return h('li', { className: `turn ${turn.role}` }, h('h3', {}, kNames[turn.role]), body, h('p', { className: 'note' }, turn.note));
  }

  actions(turn) {
    if (turn.role === 'user') {
      return [button('Edit', () => {
        this.editing = turn;
        this.show();
        this.list.querySelector('textarea').focus();
      })];
    }
    const again = button('Retry', () => this.retry(turn));
    return turn.isOpen && turn.content !== '' ? [again, button('Continue', () => this.answer(turn))] : [again];
  }

  // Buttons for the other versions of a turn.
  versions(turn) {
    const { replies } = turn.parent;
    if (replies.length < 2) return [];
    const at = replies.indexOf(turn);
    const go = (label, text, to) => {
      const one = button(text, () => {
        turn.parent.chosen = to;
        this.show();
        const others = replies[to].places.versions.filter((each) => each.matches('button:enabled'));
        (others.find((each) => each.textContent === text) ?? others[0]).focus();  // in the place of this one
      });
      one.setAttribute('aria-label', label);
      one.disabled = to < 0 || to >= replies.length;
      return one;
    };
    return [go('Version before', '‹', at - 1), h('span', { className: 'version' }, `${at + 1} of ${replies.length}`), go('Next version', '›', at + 1)];
  }

  editor(turn) {
    const id = freshId('edit');
    const text = h('textarea', { id, rows: 2, value: turn.content });
    return h('div', { className: 'field wide' }, h('label', { for: id }, 'Your message, edited'), text,
      h('div', { className: 'controls tight' }, button('Send edited', () => this.edit(turn, text.value), 'primary'), button('Cancel', () => {
        this.editing = null;
        this.show();
      })));
  }
}
