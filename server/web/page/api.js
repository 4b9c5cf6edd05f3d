// Requests to the server that this page came from.

// HTTP/1.1 gives a page six connections: four for streams and files, one for what is answered at
// once, one for the status.
const kStreams = 4;
const kStatusTimeout = 5000;
const kShortTimeout = 30000;  // ms, of what is answered at once
const kFileTimeout = 600000;  // ms, of a state that is saved or loaded
const kLongestFrame = 200;
const kFrame = 16;  // ms for which events are taken until the browser draws and hears its user

let key = '';
export function setKey(text) {
  key = text.trim();
}

class Lane {
  constructor(width) {
    this.free = width;
    this.waiting = [];
  }
  async run(task) {
    if (this.free > 0) this.free -= 1;
    else await new Promise((go) => this.waiting.push(go));
    try {
      return await task();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.free += 1;
    }
  }
}
const streams = new Lane(kStreams);
const shorts = new Lane(1);

const kRemedies = {
  400: 'Change the setting or the text that the message names, then try again.',
  401: 'Type a key of this server into the field at the top and press Use.',
  403: 'Use a key that is allowed to do this. The owner of the server can allow other hosts and pages with --http-hosts and --http-origins.',
  404: 'Choose a model from the list, or begin a new session: the server ends sessions that are idle too long.',
  405: 'Reload the page: it may be older than the server.',
  408: 'The server was too busy to answer in time. Try again.',
  409: 'Something else uses the session or has changed it. Wait a moment and try again, or fork it.',
  413: 'Send a shorter text.',
  429: 'The server has no room now. Wait a moment, or delete a session.',
  500: 'Try again. If it fails again, tell the owner of the server: its log has the cause.',
  501: 'This model or this server cannot do this. Choose another model.',
  503: 'The server is loading its models or shutting down. This page tries again by itself.',
};

// Of an error in a stream, by its type: its head was sent with status 200.
const kStatusOf = { invalid_request_error: 400, authentication_error: 401, rate_limit_error: 429 };

export class ServerError extends Error {
  constructor(status, error) {
    super(error?.message ?? `The server answered with status ${status}.`);
    this.name = 'ServerError';
    this.status = status;
    this.code = error?.code ?? null;
    this.remedy = kRemedies[status] ?? '';
  }
}

class LostServer extends Error {
  constructor() {
    super('The server does not answer.');
    this.name = 'LostServer';
    this.remedy = 'Start it again. This page notices by itself, and continues.';
  }
}

class SlowServer extends Error {
  constructor(timeout) {
    super(`The server has not answered completely within ${timeout / 1000} seconds.`);
    this.name = 'SlowServer';
    this.remedy = 'It may be too busy. Wait a moment, then try again.';
  }
}

// fetch() fails for some of these keys, and does not say why.
class ImpossibleKey extends Error {
  constructor() {
    super('This is not a key: a key has only letters, digits and signs of ASCII, and no spaces.');
    this.name = 'ImpossibleKey';
    this.remedy = kRemedies[401];
  }
}

async function ask(method, path, { body, type = 'application/json', signal } = {}) {
  const headers = {};
  if (/[^!-~]/.test(key)) throw new ImpossibleKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers['Content-Type'] = type;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, signal, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new LostServer();
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  throw new ServerError(answer.status, told?.error);
}

// Takes the error of a body that breaks off. A fault of the page itself is shown as it is.
function lost(error) {
  throw error.name === 'AbortError' ? error : new LostServer();
}

const json = async (answer) => (await answer).json().catch(lost);
const text = (value) => JSON.stringify(value);

export const status = () => json(ask('GET', '/v1/status', { signal: AbortSignal.timeout(kStatusTimeout) }));
// A request that ends within `timeout` ms. `make` makes it with a signal.
const timed = (lane, timeout, make) => lane.run(async () => {
  const signal = AbortSignal.timeout(timeout);
  try {
    return await make(signal);
  } catch (error) {
    throw signal.aborted && error instanceof LostServer ? new SlowServer(timeout) : error;
  }
});
const short = (method, path, body, timeout = kShortTimeout) =>
  timed(shorts, timeout, (signal) => json(ask(method, path, { body, signal })));
export const get = (path) => short('GET', path);
export const post = (path, body, timeout) => short('POST', path, text(body), timeout);
export const remove = (path) => short('DELETE', path);
// Goes out even while the page is closed.
export function removeAtEnd(path) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  fetch(path, { method: 'DELETE', headers, keepalive: true }).catch(() => {});
}
export const readFile = (path) =>
  timed(streams, kFileTimeout, async (signal) => (await ask('GET', path, { signal })).arrayBuffer().catch(lost));
export const writeFile = (path, body) => timed(streams, kFileTimeout, (signal) =>
  json(ask('PUT', path, { body, type: 'application/octet-stream', signal })));

// Lets the browser draw and hear its user. The stream waits until then, so a server that is faster than
// the page cannot flood it.
async function breathe() {
  if (document.hidden) return;
  await new Promise((go) => {
    requestAnimationFrame(go);
    setTimeout(go, kLongestFrame);  // no frame comes if the page is hidden now
  });
}

// Calls `take` with each event of the answer, as an object. Rejects with the server's error where the
// stream has one.
export function stream(path, body, signal, take) {
  return streams.run(async () => {
    const answer = await ask('POST', path, { body: text({ ...body, stream: true }), signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    let began = performance.now();
    try {
      for (;;) {
        const { done, value } = await reader.read().catch(lost);
        signal?.throwIfAborted();  // nothing is taken after a stop
        if (done) return;
        const events = (rest + value).split('\n\n');
        rest = events.pop();
        for (const event of events) takeEvent(event, take);
        if (performance.now() - began > kFrame) {
          await breathe();
          began = performance.now();
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  });
}

function takeEvent(event, take) {
  for (const line of event.split('\n')) {
    if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
    const data = JSON.parse(line.slice(6));
    if (data.error) throw new ServerError(kStatusOf[data.error.type] ?? 500, data.error);
    take(data);
  }
}
