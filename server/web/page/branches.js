// The sessions that this page has made of one model: what each has read and written, and how they
// have forked. The server knows states and positions; what the values were is known here alone.
import { get, post, remove, removeAtEnd, stream, readFile, writeFile } from './api.js';
import { nameOf, nameOfToken, idsOf } from './values.js';

const kTop = 5;         // alternatives of each token
const kTries = 20;      // for a session to come to rest after its stream was stopped
const kRest = 100;      // ms between them

const path = (id, rest = '') => `/v1/sessions/${encodeURIComponent(id)}${rest}`;

function bytesOf(token) {
  if (!token.startsWith('bytes:')) return new TextEncoder().encode(token);
  return Uint8Array.from(token.matchAll(/\\x([0-9a-f]{2})/g), (match) => parseInt(match[1], 16));
}

// The tokens of an event: id, bytes of text or the name of the value, probability, and the most likely
// ones in its place.
function tokensOf(choice, model) {
  const told = choice.logprobs;
  return (choice.token_ids ?? []).map((id, i) => ({
    id,
    bytes: told && model.has_text ? bytesOf(told.tokens[i]) : null,
    name: nameOf(model, id),
    p: told && told.token_logprobs[i] !== null ? Math.exp(told.token_logprobs[i]) : null,
    top: told ? Object.entries(told.top_logprobs[i] ?? {}).map(([text, log]) => ({ text: model.has_text ? text : nameOfToken(model, text), p: Math.exp(log) })) : [],
  }));
}

export class Branch {
  constructor(id, name, parent, first, tokens) {
    this.id = id;
    this.name = name;
    this.parent = parent;
    this.first = first;    // position of tokens[0]; what came before it is not known here
    this.tokens = tokens;
    this.from = first + tokens.length;  // where it left its parent
    this.norms = [];       // of its state, by position
    this.isGone = false;   // from the server
    this.isLoose = false;  // the server may have gone further than `tokens`
    this.isBusy = false;
  }
  get position() {
    return this.first + this.tokens.length;
  }
}

// Says 'change' whenever something of it has changed.
export class Tree extends EventTarget {
  constructor(model) {
    super();
    this.model = model;
    this.branches = [];
    this.current = null;
    this.watcher = null;  // {every, look(branch)}: called after so many values of a run
    this.named = 0;
  }

  changed() {
    this.dispatchEvent(new Event('change'));
  }

  select(branch) {
    this.current = branch;
    this.changed();
  }

  add(session, parent, first, tokens) {
    const name = this.named < 26 ? String.fromCharCode(65 + this.named) : `S${this.named + 1}`;
    this.named += 1;
    const branch = new Branch(session.id, name, parent, first, tokens);
    this.branches.push(branch);
    this.select(branch);
    return branch;
  }

  async start() {
    return this.add(await post('/v1/sessions', { model: this.model.id }), null, 0, []);
  }

  // Has the branch read `prompt` and then sample `max` values. `told` is called as values come.
  async extend(branch, { prompt, max, options = {} }, signal, told = () => {}) {
    await this.settle(branch);
    const end = this.model.max_length ?? Infinity;
    if (branch.position >= end) throw new Error(`This sequence has ${end} values, the most that the model can hold. Fork it at an earlier value, or begin a new one.`);
    const ids = prompt === undefined ? undefined : await this.idsOf(branch, prompt);
    branch.isBusy = true;
    this.changed();
    try {
      let left = Math.min(max, Math.max(0, end - branch.position));
      for (let given = ids; given !== undefined || left > 0; given = undefined) {
        const chunk = this.watcher ? Math.min(left, this.watcher.every) : left;
        const before = branch.position;
        const reason = await this.run(branch, { ...options, prompt: given, max_tokens: chunk }, signal, told);
        left -= chunk;
        if (this.watcher) await this.watcher.look(branch);
        if (reason === 'stop' || branch.position === before) break;
      }
    } finally {
      branch.isBusy = false;
      this.changed();
    }
  }

  // The ids of a text, or of values as somebody types them. Those of a new sequence come after the
  // model's first value, if it has one.
  async idsOf(branch, text) {
    let ids = [];
    if (!this.model.has_text) ids = idsOf(this.model, text);
    else if (text !== '') ids = (await post('/tokenize', { model: this.model.id, prompt: text })).tokens;
    const begins = branch.position === 0 && this.model.begin !== null;
    return begins ? [this.model.begin, ...ids] : ids;
  }

  async run(branch, options, signal, told) {
    const hasOdds = !this.model.image;
    const body = { model: this.model.id, session: branch.id, return_token_ids: true, ...options };
    if (hasOdds) body.logprobs = Math.min(kTop, this.model.vocabulary);
    if (hasOdds && options.prompt !== undefined) body.echo = true;
    let reason = null;
    branch.isLoose = true;
    await stream('/v1/completions', body, signal, (event) => {
      const choice = event.choices[0];
      if (!choice) return;
      const tokens = tokensOf(choice, this.model);
      if (this.model.has_text && branch.position === 0 && tokens[0]?.id === this.model.begin) tokens[0].bytes = new Uint8Array();
      branch.tokens.push(...tokens);
      if (choice.finish_reason) {
        reason = choice.finish_reason;
        branch.isLoose = choice.position !== branch.position;
      }
      if (tokens.length > 0) told(tokens);
    });
    return reason;
  }

  // Makes the server's session stand where the branch does, whatever has happened to it.
  async settle(branch) {
    if (branch.isGone) return this.rebuild(branch);
    if (!branch.isLoose) return undefined;
    const session = await this.rested(branch);
    if (session && session.position !== branch.position) await this.rewindOrRebuild(branch, branch.position);
    else if (!session) await this.rebuild(branch);
    branch.isLoose = false;
    return undefined;
  }

  // The session once nothing runs in it; null where there is none.
  async rested(branch) {
    for (let i = 0; i < kTries; ++i) {
      try {
        const session = await get(`${path(branch.id)}?model=${encodeURIComponent(this.model.id)}`);
        if (session.state === 'idle' || session.state === 'new') return session;
      } catch (error) {
        if (error.status === 404) return null;
        throw error;
      }
      await new Promise((go) => setTimeout(go, kRest));
    }
    throw new Error('The session is still in use. Wait a moment, then try again.');
  }

  // A new session that has read what the branch knows: for servers without --rewind, and for sessions
  // that have ended.
  async rebuild(branch) {
    if (branch.first > 0) throw new Error('The session has ended, and this page does not know its first values. Load its state again.');
    const old = branch.id;
    branch.id = (await post('/v1/sessions', { model: this.model.id })).id;
    if (!branch.isGone) await remove(`${path(old)}?model=${encodeURIComponent(this.model.id)}`).catch(() => {});
    branch.isGone = false;
    if (branch.tokens.length > 0) await this.feed(branch.id, branch.tokens);
  }

  feed(id, tokens) {
    const prompt = tokens.map((token) => token.id);
    return stream('/v1/completions', { model: this.model.id, session: id, prompt, max_tokens: 0 }, undefined, () => {});
  }

  async rewindOrRebuild(branch, position) {
    try {
      await post(path(branch.id, '/rewind'), { model: this.model.id, position });
    } catch (error) {
      if (error.status !== 400 && error.status !== 404) throw error;
      await this.rebuild(branch);
    }
  }

  // A branch of its own that stands at `position` of this one. A copy goes back no further than where
  // it was made, so the copy takes this one's place, and this one's session goes back.
  async fork(branch, position = branch.position) {
    await this.settle(branch);
    const made = await post(path(branch.id, '/fork'), { model: this.model.id });
    let parent = branch;
    while (parent.parent && position < parent.from) parent = parent.parent;
    const child = this.add(made.data[0], parent, branch.first, branch.tokens.slice(0, position - branch.first));
    child.norms = branch.norms.filter((norm) => norm.position <= position);
    if (position !== branch.position) {
      [branch.id, child.id] = [child.id, branch.id];
      await this.rewindOrRebuild(child, position);
    }
    this.changed();
    return child;
  }

  async goBack(branch, position) {
    await this.settle(branch);
    branch.tokens.length = position - branch.first;
    branch.norms = branch.norms.filter((norm) => norm.position <= position);
    await this.rewindOrRebuild(branch, position);
    this.changed();
  }

  async remove(branch) {
    if (!branch.isGone) await remove(`${path(branch.id)}?model=${encodeURIComponent(this.model.id)}`);
    this.branches = this.branches.filter((each) => each !== branch);
    for (const each of this.branches) if (each.parent === branch) each.parent = branch.parent;
    this.select(this.branches.at(-1) ?? null);
  }

  async save(branch) {
    await this.settle(branch);
    return readFile(`${path(branch.id, '/state')}?model=${encodeURIComponent(this.model.id)}`);
  }

  async load(buffer, id) {
    const session = await writeFile(`${path(id, '/state')}?model=${encodeURIComponent(this.model.id)}`, buffer);
    return this.add(session, null, session.position, []);
  }

  // The page is closed.
  leave() {
    for (const branch of this.branches) {
      if (!branch.isGone) removeAtEnd(`${path(branch.id)}?model=${encodeURIComponent(this.model.id)}`);
    }
  }

  // The server was lost and is there again: which sessions are still there?
  async check() {
    for (const branch of this.branches) {
      const session = await this.rested(branch).catch(() => undefined);
      if (session === undefined) continue;
      branch.isGone = session === null;
      branch.isLoose = session !== null && session.position !== branch.position;
    }
    this.changed();
  }
}
