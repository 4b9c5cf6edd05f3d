// How the values of a model without text are written: as its symbols, or as numbers.

const kNamed = /^token_id:(\d+)$/;  // how the server names a value in lists of probabilities
const kListed = 12;  // symbols that a label shows
const kFirst = [3, 1, 4, 0];  // of the field for values, as far as the model has them

export const nameOf = (model, id) => model.symbols?.[id] ?? String(id);

// The name of a token of the server's lists.
export function nameOfToken(model, token) {
  const id = kNamed.exec(token)?.[1];
  return id === undefined ? token : nameOf(model, Number(id));
}

// What may be typed, for a person.
export function wordsOf(model) {
  if (!model.symbols) return `whole numbers from 0 to ${model.vocabulary - 1}`;
  const words = model.symbols.slice(0, kListed).join(' ');
  return model.symbols.length > kListed ? `${words} …` : words;
}

export const beginningOf = (model) => kFirst.filter((id) => id < model.vocabulary).map((id) => nameOf(model, id)).join(' ');

// The ids of values that somebody typed, with spaces or commas between them.
export function idsOf(model, text) {
  return text.split(/[\s,]+/).filter((word) => word !== '').map((word) => {
    const id = model.symbols?.indexOf(word) ?? -1;
    if (id >= 0) return id;
    if (/^\d+$/.test(word) && Number(word) < model.vocabulary) return Number(word);
    throw Object.assign(new Error(`“${word}” is not a value of this model.`), { remedy: `Its values are: ${wordsOf(model)}. Type them with spaces between.` });
  });
}
