// The page: which model is chosen, what it is, and the panels that fit it.
import * as api from './api.js';
import { h, find, number, bytes, announce } from './ui.js';
import { Strip } from './strip.js';
import { picturePanels } from './pictures.js';
import { textPanels } from './text.js';

const kPeriod = 1000;  // of the status, in ms
const kRetry = 1500;
const kMostGone = 8;  // models that the server no longer has and may have again, whose panels are kept

const strip = new Strip(find('strip'));
let chosen = null;   // the name of a model
let served = [];     // the models of the last status
let kind = '';       // of the chosen model, as the panels show it
let panels = null;   // of the chosen model: {elements, opened(), returned(), close(), leave()}
const made = new Map();  // panels by what they are of, so that sessions outlast a look at another model
let isLost = false;

function kindOf(model) {
  if (model.image) return `pictures, ${model.image.width} × ${model.image.height}`;
  if (model.has_chat) return 'text and chat';
  return model.has_text ? 'text' : `${number(model.vocabulary)} values`;
}

function facts(model) {
  const rows = [
    ['One session', (model.position_bytes > 0 ? 'at most ' : '') + bytes(model.state_bytes) + (model.position_bytes > 0 ? `, ${number(model.position_bytes)} bytes for each value` : ', however long')],
    ['In use', `${number(model.sessions - model.sessions_free)} of ${number(model.sessions)} sessions`],
    ['Free', `${number(model.sessions_free)} sessions`],
    ['Parameters', number(model.parameters)],
    ['Longest sequence', model.max_length === null ? 'no limit' : `${number(model.max_length)} values`],
    ['Numerics id', model.numerics],
  ];
  const list = find('facts');
  if (list.childElementCount === 0) list.append(...rows.map(([term]) => h('div', {}, h('dt', {}, term), h('dd'))));
  rows.forEach(([, text], i) => {
    const value = list.children[i].lastChild;
    if (value.textContent !== text) value.textContent = text;  // a selected text stays selected
  });
}

function showModels(models) {
  served = models;
  const names = models.map((model) => `${model.id} ${kindOf(model)}`).join('\n');
  const list = find('models');
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...models.map((model) => {
      const input = h('input', {
        type: 'radio', name: 'model', value: model.id, checked: model.id === chosen,
        onchange: () => choose(served.find((each) => each.id === model.id)),
      });
      return h('label', { className: 'model' }, input, h('span', { className: 'name' }, model.id),
        h('span', { className: 'kind' }, kindOf(model)));
    }));
  }
}

function panelsOf(model) {
  return model.image ? picturePanels(model) : textPanels(model);
}

const keyOf = (model) => [model.id, kindOf(model), model.numerics, model.state_bytes, model.max_length].join(' ');

// Drops the panels used longest ago of models that the server no longer has, so that reloads do not fill the memory.
function dropGone() {
  const current = new Set(served.map(keyOf));
  const gone = [...made.keys()].filter((key) => !current.has(key));
  for (const key of gone.slice(0, -kMostGone)) {
    made.get(key).leave();
    made.delete(key);
  }
}

function choose(model) {
  chosen = model.id;
  kind = kindOf(model);
  panels?.close();
  dropGone();
  const key = keyOf(model);
  const isNew = !made.has(key);
  panels = made.get(key) ?? panelsOf(model);
  made.delete(key);  // so that the panels used last are at the end
  made.set(key, panels);
  find('panels').replaceChildren(...panels.elements);
  if (isNew) panels.opened?.();
  for (const input of find('models').querySelectorAll('input')) input.checked = input.value === chosen;
  facts(model);
}

function showStatus(status) {
  find('version').textContent = `runnel ${status.version}`;
  showModels(status.models);
  const model = status.models.find((each) => each.id === chosen);
  // A model of another kind under this name needs other panels. Otherwise these stay, with what they show.
  if (model && kindOf(model) !== kind) choose(model);
  else if (model) facts(model);
  else if (status.models.length > 0) {
    choose(status.models.find((each) => each.image?.channels === 1) ?? status.models[0]);
  }
  strip.add(status.models, chosen);
}

function showLost(error) {
  const banner = find('lost');
  banner.hidden = false;
  const text = `${error.message} ${error.remedy ?? ''}`;
  if (banner.textContent !== text) banner.textContent = text;
}

async function watch() {
  let wait = kPeriod;
  if (!document.hidden) {
    try {
      showStatus(await api.status());
      find('lost').hidden = true;
      if (isLost) {
        announce('The server answers again.');
        for (const each of made.values()) each.returned();
      }
      isLost = false;
    } catch (error) {
      showLost(error);
      strip.clear();
      isLost = true;
      wait = kRetry;
    }
  }
  setTimeout(watch, wait);
}

find('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  api.setKey(find('key').value);
  api.status().then((status) => {
    find('lost').hidden = true;
    showStatus(status);
    announce('The server takes this key.');
  }, showLost);
});

// Nobody can reach the sessions of a page that is closed, so they end with it.
addEventListener('pagehide', () => {
  for (const each of made.values()) each.leave();
});
addEventListener('pageshow', (event) => {
  if (event.persisted) for (const each of made.values()) each.returned();
});

watch();
