// What a TypeScript client of any generation does at the conformance project, told as JSON: a line for each step.
//
// The steps are those of walk.py, and what they tell has the same form. `sdk1.mjs` and `client2.mjs` are what the
// generations differ in. A step that fails tells its error, and the walk goes on.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const TIMEOUT = 10_000;
const STEP_TIMEOUT = 25_000;
const WATCHED = 'test://watched-resource';
const UPDATED = 'notifications/resources/updated';
const MESSAGE = 'notifications/message';
// What a person fills into forms, by the name of the field.
const FORM = { name: 'Ada', username: 'ada', email: 'ada@example.com', ok: true, context: 'a walk' };

// What the promise gives, or an error after so many milliseconds.
async function within(milliseconds, promise, reason) {
  const timer = new AbortController();
  const late = sleep(milliseconds, null, { signal: timer.signal }).then(() => {
    throw new Error(`${reason()} (after ${milliseconds} ms)`);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    late.catch(() => {});
    timer.abort();
  }
}

export const ROOT = { uri: 'file:///srv/notes', name: 'notes' };

// All that the server says of its own accord, in the order in which it came.
export class Ear {
  heard = [];
  troubles = [];
  requests = [];
  #waiting = new Set();

  hear(method, params) {
    this.heard.push({ method, params: params ?? {} });
    this.#wake();
  }

  // Notes each HTTP request; the packages take the global function when they need it.
  watchHttp() {
    const original = globalThis.fetch;
    globalThis.fetch = async (url, options = {}) => {
      const response = await original(url, options);
      const session = response.headers.get('mcp-session-id');
      this.requests.push({ method: options.method ?? 'GET', status: response.status, session });
      this.#wake();
      return response;
    };
  }

  #wake() {
    for (const check of this.#waiting) check();
  }

  async until(what, condition) {
    if (condition()) return;
    let check;
    const met = new Promise(resolve => {
      check = () => condition() && resolve(true);
      this.#waiting.add(check);
    });
    await within(TIMEOUT, met, () => `not heard: ${what}; heard: ${JSON.stringify(this.heard.slice(-10))}`).finally(() =>
      this.#waiting.delete(check));
  }

  count(method, uri) {
    return this.heard.filter(told => told.method === method && (uri === undefined || told.params.uri === uri)).length;
  }

  texts() {
    return this.heard.filter(told => told.method === MESSAGE).map(told => told.params.data);
  }

  get session() {
    return this.requests.find(request => request.session)?.session ?? null;
  }

  get gets() {
    return this.requests.filter(request => request.method === 'GET' && request.status === 200).length;
  }

  untilStream() {
    return this.until('a GET stream', () => this.gets > 0);
  }
}

// What a person answers to a question.
export function answer(params) {
  const action = ['decline', 'cancel'].find(word => params.message.toLowerCase().includes(word));
  if (action) return { action };
  const fields = Object.entries(params.requestedSchema.properties);
  return {
    action: 'accept',
    content: Object.fromEntries(fields.map(([name, field]) => [name, FORM[name] ?? any(field)])),
  };
}

// A value that a field takes: of choices the first.
function any(field) {
  const [choice] = field.oneOf ?? field.anyOf ?? [];
  if (choice) return choice.const;
  if (field.enum) return field.enum[0];
  if (field.type === 'array') return [any(field.items)];
  // An older revision has no lists: the choices stand in the text.
  if (field.type === 'string') return (field.description ?? 'something').split(': ').at(-1).split(',')[0];
  return { boolean: true, integer: 1, number: 1.5 }[field.type];
}

// What a model answers.
export const sampled = () => ({
  role: 'assistant', content: { type: 'text', text: 'Paris.' }, model: 'a-model-of-the-test',
});

// What every client does in the same way; `client` and `transport` are the package's own.
export class Session {
  asked = [];

  constructor(ear, given) {
    Object.assign(this, { ear, given });
  }

  async ready() {
    if (this.given.transport === 'http' && !this.given.modern) await this.ear.untilStream();
  }

  async structured(name, args) {
    const result = await this.call(name, args);
    if (result.isError) throw new Error(JSON.stringify(result));
    return JSON.parse(result.content[0].text);
  }

  read(uri) {
    return this.client.readResource({ uri });
  }

  prompt(name, args) {
    return this.client.getPrompt({ name, ...(args && { arguments: args }) });
  }

  async complete(ref, name, value) {
    return (await this.client.complete({ ref, argument: { name, value } })).completion.values;
  }

  async outcome(attempt) {
    try {
      return await attempt();
    } catch (error) {
      if (typeof error.code !== 'number') throw error;
      return { code: error.code, message: error.message };
    }
  }

  async code(attempt) {
    return (await this.outcome(attempt)).code ?? null;
  }

  // Makes a call, and cancels it once it has begun.
  async abandon(name, args, started) {
    const abort = new AbortController();
    const call = this.call(name, args, { signal: abort.signal }).then(() => 'answered', () => 'aborted');
    await started();
    abort.abort('nobody waits any more');
    if ((await call) !== 'aborted') throw new Error('the call was answered');
  }

  // Subscribes as the handshake era does, and gives what ends it.
  async watch(uris) {
    for (const uri of uris) await this.client.subscribeResource({ uri });
    return async () => {
      for (const uri of uris) await this.client.unsubscribeResource({ uri });
    };
  }
}

// The call that brings the answers, from a client whose person is asked by the model.
function byHand(tool, args, asked) {
  const forms = Object.entries(asked.answers.properties);
  const answers = Object.fromEntries(
    forms.map(([key, form]) => [key, answer({ message: '', requestedSchema: form }).content]));
  return [tool, { ...args, answers, confirm_token: asked.confirm_token }];
}

// Steps

const steps = {
  hello: session => ({ ...session.hello(), session: session.ear.session }),
  ping: session => session.ping(),
  lists: async session => ({
    tools: (await session.list('tools')).map(tool => tool.name),
    resources: (await session.list('resources')).map(resource => resource.uri),
    resourceTemplates: (await session.list('resourceTemplates')).map(template => template.uriTemplate),
    prompts: (await session.list('prompts')).map(prompt => prompt.name),
  }),

  async results(session) {
    const found = {};
    const names = 'simple_text image_content audio_content embedded_resource multiple_content_types error_handling';
    for (const name of [...names.split(' '), 'resource_link']) found[name] = await session.call(`test_${name}`, {});
    return { ...found, structured: await session.call('test_structured', { city: 'Kiel' }) };
  },

  async progress(session) {
    const told = [];
    const onprogress = ({ progress, total }) => told.push([progress, total ?? null]);
    await session.call('test_tool_with_progress', {}, { onprogress });
    return told;
  },

  async resources(session) {
    const uris = { text: 'test://static-text', binary: 'test://static-binary', template: 'test://template/123/data' };
    const found = {};
    for (const [name, uri] of Object.entries(uris)) found[name] = (await session.read(uri)).contents[0];
    found.page = JSON.parse((await session.read('django://conformance/shelf000')).contents[0].text);
    return { ...found, missing: await session.code(() => session.read('test://missing')) };
  },

  async prompts(session) {
    const given = {
      test_simple_prompt: undefined,
      test_prompt_with_arguments: { arg1: 'one', arg2: 'two' },
      test_prompt_with_embedded_resource: { resourceUri: 'test://x' },
      test_prompt_with_image: undefined,
    };
    const found = {};
    for (const [name, args] of Object.entries(given)) found[name] = (await session.prompt(name, args)).messages;
    return { ...found, missing: await session.code(() => session.prompt('missing')) };
  },

  async completions(session) {
    const template = 'django://{app_label}/{model_name}/{pk}';
    return {
      prompt: await session.complete({ type: 'ref/prompt', name: 'test_completed_prompt' }, 'city', 'K'),
      template: await session.complete({ type: 'ref/resource', uri: template }, 'app_label', 'conf'),
    };
  },

  async logs(session) {
    const { ear } = session;
    await session.call('test_logging_tool', {});
    const before = ear.texts();
    await session.callAt('info', 'test_tool_with_logging');
    await ear.until('three log messages', () => ear.texts().length >= 3);
    const info = ear.texts();
    await session.callAt('error', 'test_tool_with_logging');
    await session.callAt('debug', 'test_logging_tool');
    await ear.until('one more log message', () => ear.texts().length > info.length);
    return { before, info, after: ear.texts().slice(info.length) };
  },

  async updates(session) {
    const { ear } = session;
    await session.ready();
    const note = await session.structured('write_note', { title: 'a note of the walk' });
    const pk = note.uri.split('/').at(-1);
    const endAll = await session.watch([WATCHED]);
    const end = await session.watch([note.uri]);
    await session.call('change_note', { note: pk, title: 'changed' });
    await ear.until('an update of the note', () => ear.count(UPDATED, note.uri));
    await end();
    const updates = ear.count(UPDATED, note.uri);
    const watched = ear.count(UPDATED, WATCHED);
    await session.call('change_note', { note: pk, title: 'changed again' });
    await session.call('change_watched_resource', {});
    await ear.until('an update of the watched resource', () => ear.count(UPDATED, WATCHED) > watched);
    await endAll();
    const row = JSON.parse((await session.read(note.uri)).contents[0].text);
    return { title: row.fields.title, updates, unasked: ear.count(UPDATED, note.uri) - updates };
  },

  async list_changes(session) {
    const { ear } = session;
    await session.ready();
    const found = {};
    const end = await session.watch([], ['tools', 'prompts']);
    for (const kind of ['tools', 'prompts']) {
      const method = `notifications/${kind}/list_changed`;
      const before = ear.count(method);
      await session.call(`test_trigger_${kind.slice(0, -1)}_change`, {});
      await ear.until(method, () => ear.count(method) > before);
      found[kind] = true;
    }
    await end();
    return found;
  },

  async questions(session) {
    const calls = {
      accepted: ['test_elicitation', { message: 'Who are you?' }],
      declined: ['test_elicitation', { message: 'Please decline.' }],
      cancelled: ['test_elicitation', { message: 'Please cancel.' }],
      sampled: ['test_sampling', { prompt: 'What is the capital of France?' }],
      roots: ['test_input_required_result_list_roots', {}],
      several: ['test_input_required_result_multiple_inputs', {}],
      rounds: ['test_input_required_result_multi_round', {}],
      choices: ['test_elicitation_sep1330_enums', {}],
    };
    const found = {};
    for (const [name, call] of Object.entries(calls)) found[name] = await session.outcome(() => session.call(...call));
    found.prompt = await session.outcome(() => session.prompt('test_input_required_result_prompt'));
    const { text } = found.accepted.content[0];
    if (text.includes('input_required')) found.by_hand = await session.call(...byHand(...calls.accepted, JSON.parse(text)));
    return { ...found, asked: session.asked };
  },

  async cancellation(session) {
    const name = `cancelled-${randomUUID()}`;
    const state = async () => (await session.call('look_for_cancellation', { name })).content[0].text;
    const reaches = async wanted => {
      while ((await state()) !== wanted) await sleep(50);
    };
    await session.abandon('wait_for_cancellation', { name }, () => reaches('started'));
    await reaches('cancelled');
    return { became: await state() };
  },

  async reconnection(session) {
    const before = session.ear.gets;
    return { result: await session.call('test_reconnection', {}), gets: session.ear.gets - before };
  },
};

// What a session remembers when its client comes back on a new connection.
async function return_visit(session) {
  const { ear } = session;
  await session.ping();
  await session.call('test_logging_tool', {});
  await ear.until('a log message', () => ear.texts().length);
  return { logged: ear.texts() };
}

const tell = line => process.stdout.write(`${JSON.stringify(line)}\n`);

async function take(name, step, session) {
  try {
    tell({ step: name, told: await within(STEP_TIMEOUT, step(session), () => 'the step did not end') });
  } catch (error) {
    tell({ step: name, error: error.stack });
  }
}

// Connects, and tells of what went wrong there.
async function visit(name, connect, given, ear, sessionId, stay) {
  try {
    const session = await connect(given, ear, sessionId);
    await stay(session);
    // What happens while the connection is closed is the client's own affair.
    tell({ step: name, told: { session: ear.session, troubles: [...ear.troubles] } });
    if (!given.keep && given.transport === 'http') await session.transport.terminateSession?.();
    await session.client.close();
  } catch (error) {
    tell({ step: name, error: error.stack });
  }
}

export async function walk(connect) {
  const given = JSON.parse(process.argv[2]);
  const keep = given.transport === 'http' && !given.modern;
  const ear = new Ear();
  ear.watchHttp();
  await visit('first_visit', connect, { ...given, keep }, ear, undefined, async session => {
    for (const [name, step] of Object.entries(steps)) await take(name, step, session);
  });
  if (keep && ear.session) {
    const again = new Ear();
    again.requests.push({ method: '-', status: 0, session: ear.session });
    await visit('second_visit', connect, { ...given, keep }, again, ear.session, session =>
      take('return_visit', return_visit, session));
    const last = new Ear();
    last.watchHttp();
    await visit('last_visit', connect, given, last, undefined, async () => {});
  }
  // A client whose server has gone may try for ever to come back to it.
  process.exit();
}
