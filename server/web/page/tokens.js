// Text as tokens, or values by their names: each shaded by its probability.
import { h } from './ui.js';

export class TokenView {
  constructor() {
    this.element = h('div', { className: 'tokens' });
    this.clear();
    this.element.addEventListener('pointerover', (event) => this.hear(event, (i) => this.onhover?.(i)));
    this.element.addEventListener('click', (event) => this.hear(event, (i) => this.onpick?.(i)));
  }

  hear(event, take) {
    const i = this.spans.indexOf(event.target);
    if (i >= 0) take(i);
  }

  clear() {
    this.spans = [];
    this.last = null;  // token that is shown
    this.common = 0;
    this.decoder = new TextDecoder();
    this.element.replaceChildren();
  }

  // Shows these tokens, and adds only what is new. The first `common` are shared with another. Tokens
  // are shared by texts that begin alike, so the last one that is shown tells whether the rest is.
  show(tokens, common = 0) {
    const count = this.spans.length;
    if (count > 0 && tokens[count - 1] !== this.last) this.clear();
    const added = document.createDocumentFragment();
    for (const token of tokens.slice(this.spans.length)) {
      this.spans.push(this.span(token));
      added.append(this.spans.at(-1));
    }
    this.element.append(added);
    this.last = tokens.at(-1) ?? null;
    if (common === this.common && common === 0) return;
    this.common = common;
    this.spans.forEach((span, i) => span.classList.toggle('common', i < common));
  }

  span(token) {
    const text = token.bytes ? this.decoder.decode(token.bytes, { stream: true }) : `${token.name} `;
    const span = h('span', { className: 'token' }, text);
    if (token.p !== null) span.style.setProperty('--surprise', Math.min(1, -Math.log(token.p) / 6).toFixed(3));
    return span;
  }

  mark(i) {
    for (const span of this.element.querySelectorAll('.marked')) span.classList.remove('marked');
    this.spans[i]?.classList.add('marked');
  }

  text(i) {
    return this.spans[i]?.textContent ?? '';
  }
}
