// The sessions that this page has made of one model: what each has read and written, and how they
// have forked. The server knows states and positions; what the values were is known here alone.
import { get, post, remove, removeAtEnd, stream, readFile, writeFile } from './api.js';
import { nameOf, nameOfToken, idsOf } from './values.js';

const kTop = 5;         // alternatives of each token
const kTries = 20;      // for a session to come to rest after its stream was stopped
const kRest = 100;      // ms between them
const kRewindTimeout = 600000;  // ms: the server may compute many values again

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
    top: told ? likelyOf(told.top_logprobs[i] ?? {}, model) : [],
  }));
}

// The most likely token first: an object has the tokens that are digits before all others.
function likelyOf(logs, model) {
  const likely = Object.entries(logs).map(([text, log]) => ({ text: model.has_text ? text : nameOfToken(model, text), p: Math.exp(log) }));
  return likely.sort((a, b) => b.p - a.p);
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
    this.isLoose = false;  // its session may be at another position than the end of `tokens`
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
    this.spare = new Set();  // ids of sessions that belong to no branch yet
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
    const body = { model: this.model.id, return_token_ids: true, ...options };
    if (hasOdds) body.logprobs = Math.min(kTop, this.model.vocabulary);
    if (hasOdds && options.prompt !== undefined) body.echo = true;
    let reason = null;
    const take = (event) => {
      const choice = event.choices[0];
      if (!choice) return;
      const tokens = tokensOf(choice, this.model);
      if (this.model.has_text && branch.position === 0 && tokens[0]?.id === this.model.begin) tokens[0].bytes = new Uint8Array();
      for (const token of tokens) branch.tokens.push(token);  // a long prompt is more than a call can take as arguments
      if (choice.finish_reason) {
        reason = choice.finish_reason;
        branch.isLoose = choice.position !== branch.position;
      }
      if (tokens.length > 0) told(tokens);
    };
    await this.onSession(branch, () => {
      branch.isLoose = true;
      return stream('/v1/completions', { ...body, session: branch.id }, signal, take);
    });
    return reason;
  }

  // Asks something of the branch's session. If the server has ended the session, which may be idle for too
  // long, the branch gets another one, and this one is asked.
  async onSession(branch, ask) {
    try {
      return await ask();
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    branch.isLoose = true;
    await this.settle(branch);
    return ask();
  }

  // Makes the server's session stand where the branch does, whatever has happened to it.
  async settle(branch) {
    if (branch.isGone) return this.rebuild(branch, branch.position);
    if (!branch.isLoose) return undefined;
    const session = await this.rested(branch);
    if (session && session.position !== branch.position) await this.rewindOrRebuild(branch, branch.position);
    else if (!session) await this.rebuild(branch, branch.position);
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

  // Gives the branch a new session that has read its tokens up to `position`: for servers without
  // --rewind, and for sessions that have ended. If that fails, the branch keeps the session it had.
  async rebuild(branch, position) {
    const old = branch.id;
    branch.id = await this.read(branch.first, branch.tokens.slice(0, position - branch.first));
    if (!branch.isGone) await this.end(old);
    branch.isGone = false;
  }

  // The id of a new session that has read these tokens. If it cannot read them, no session is left.
  async read(first, tokens) {
    if (first > 0) throw new Error('A new session would have to read every value from the start, but this page does not know those before the loaded state. Load the state again.');
    const { id } = await post('/v1/sessions', { model: this.model.id });
    this.spare.add(id);
    try {
      if (tokens.length > 0) await this.feed(id, tokens);
    } catch (error) {
      await this.end(id);
      throw error;
    } finally {
      this.spare.delete(id);
    }
    return id;
  }

  feed(id, tokens) {
    const prompt = tokens.map((token) => token.id);
    return stream('/v1/completions', { model: this.model.id, session: id, prompt, max_tokens: 0 }, undefined, () => {});
  }

  // Deletes a session that the page no longer needs, if the server still has it.
  end(id) {
    return remove(`${path(id)}?model=${encodeURIComponent(this.model.id)}`).catch(() => {});
  }

  // Whether the session went back to `position`. If the server refuses, the session is as it was. After
  // an error it may be elsewhere.
  async rewind(id, position) {
    try {
      await post(path(id, '/rewind'), { model: this.model.id, position }, kRewindTimeout);
      return true;
    } catch (error) {
      if (error.status !== 400 && error.status !== 404) throw error;
      return false;
    }
  }

  async rewindOrRebuild(branch, position) {
    if (!(await this.rewind(branch.id, position))) await this.rebuild(branch, position);
  }

  // A branch of its own at `position` of this one. If that fails, this one is as it was.
  async fork(branch, position = branch.position) {
    await this.settle(branch);
    const tokens = branch.tokens.slice(0, position - branch.first);
    const id = position === branch.position ? await this.copy(branch) : await this.copyBack(branch, position, tokens);
    let parent = branch;
    while (parent.parent && position < parent.from) parent = parent.parent;
    const child = this.add({ id }, parent, branch.first, tokens);
    child.norms = branch.norms.filter((norm) => norm.position <= position);
    this.changed();
    return child;
  }

  // The id of a new session at the position of the branch.
  async copy(branch) {
    const made = await this.onSession(branch, () => post(path(branch.id, '/fork'), { model: this.model.id }));
    return made.data[0].id;
  }

  // The id of a session that has read only `tokens`, up to `position`, of the branch. A copy goes back no
  // further than where it was made, so the copy takes the branch's place, and the branch's session goes
  // back. If the server refuses, the copy ends first: a new session may need its place.
  async copyBack(branch, position, tokens) {
    const copy = await this.copy(branch);
    const own = branch.id;
    branch.id = copy;
    this.spare.add(own);
    try {
      if (await this.rewind(own, position)) return own;
    } catch (error) {
      await this.end(own);
      throw error;
    } finally {
      this.spare.delete(own);
    }
    branch.id = own;
    await this.end(copy);
    return this.read(branch.first, tokens);
  }

  async goBack(branch, position) {
    await this.settle(branch);
    branch.isLoose = true;  // until the server says that it is there
    await this.rewindOrRebuild(branch, position);
    branch.isLoose = false;
    branch.tokens.length = position - branch.first;
    branch.norms = branch.norms.filter((norm) => norm.position <= position);
    this.changed();
  }

  async remove(branch) {
    try {
      if (!branch.isGone) await remove(`${path(branch.id)}?model=${encodeURIComponent(this.model.id)}`);
    } catch (error) {
      if (error.status !== 404) throw error;  // the server has ended it before
    }
    this.branches = this.branches.filter((each) => each !== branch);
    for (const each of this.branches) if (each.parent === branch) each.parent = branch.parent;
    this.select(this.branches.at(-1) ?? null);
  }

  async save(branch) {
    await this.settle(branch);
    return this.onSession(branch, () => readFile(`${path(branch.id, '/state')}?model=${encodeURIComponent(this.model.id)}`));
  }

  async load(buffer, id) {
    const session = await writeFile(`${path(id, '/state')}?model=${encodeURIComponent(this.model.id)}`, buffer);
    return this.add(session, null, session.position, []);
  }

  // The page is closed.
  leave() {
    const ids = this.branches.filter((branch) => !branch.isGone).map((branch) => branch.id);
    for (const id of [...ids, ...this.spare]) removeAtEnd(`${path(id)}?model=${encodeURIComponent(this.model.id)}`);
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
