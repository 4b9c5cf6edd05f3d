// Elements, formats and announcements that every panel uses.

// An element with properties, attributes ("aria-..." and data of `attributes`) and children. A child
// that is a string becomes text: nothing here ever parses HTML.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name.includes('-') || name === 'role' || name === 'for') element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const kSvg = 'http://www.w3.org/2000/svg';

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const find = (id) => document.getElementById(id);

export const motionIsReduced = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// Says it to a screen reader, politely.
export function announce(text) {
  find('announcer').textContent = text;
}

export const number = (value) => Math.round(value).toLocaleString('en-US');

export function bytes(count) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count < 10 && unit > 0 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export function percent(probability) {
  const value = probability * 100;
  if (value >= 10) return `${Math.round(value)}%`;
  return value >= 0.1 ? `${value.toFixed(1)}%` : '< 0.1%';
}

// A token as somebody can read it.
export const shown = (text) => text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/^ +$/, (s) => '␣'.repeat(s.length));

let ids = 0;
export const freshId = (name) => `${name}-${++ids}`;

// A labelled number; blank means that nobody has set it.
export function numberField(text, properties) {
  const id = freshId('field');
  const input = h('input', { id, type: 'number', inputMode: 'decimal', ...properties });
  const field = h('div', { className: 'field' }, h('label', { for: id }, text), input);
  field.input = input;
  return field;
}

export function choiceField(text, options, chosen) {
  const id = freshId('field');
  const select = h('select', { id }, ...options.map(([value, name]) => h('option', { value }, name)));
  select.value = chosen;
  const field = h('div', { className: 'field' }, h('label', { for: id }, text), select);
  field.input = select;
  return field;
}

export function button(text, onclick, className = '') {
  return h('button', { type: 'button', className, onclick }, text);
}

// A card of the page: a section with a title.
export function card(title, ...children) {
  const id = freshId('title');
  return h('section', { className: 'card', 'aria-labelledby': id }, h('h2', { id }, title), ...children);
}

// Shows what went wrong in the server's words, and what to do about it.
export function errorBox() {
  const box = h('div', { className: 'error', role: 'alert', hidden: true });
  box.show = (error) => {
    if (error.name === 'AbortError') return;
    box.hidden = false;
    box.replaceChildren(h('strong', {}, error.message), error.remedy ? h('span', {}, ` ${error.remedy}`) : '');
  };
  box.clear = () => {
    box.hidden = true;
    box.replaceChildren();
  };
  return box;
}

export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// The number in a field, or undefined.
export const valueOf = (field) => (field.input.value === '' ? undefined : Number(field.input.value));

// The seed that somebody has set, or a new one.
export const seedOf = (field) => valueOf(field) ?? Math.floor(Math.random() * 1e6);

// Sizes a canvas for its box and the screen, and gives its context, in CSS pixels.
export function sharpContext(canvas) {
  const box = canvas.getBoundingClientRect();
  const scale = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(box.width * scale));
  canvas.height = Math.max(1, Math.round(box.height * scale));
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  return [context, box.width, box.height];
}

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
