// @modelcontextprotocol/sdk 1.x; the second argument is the name under which a version is installed.

import { Session, ROOT, answer, sampled, walk } from './walk.mjs';

const name = process.argv[3];
const load = path => import(`${name}/${path}`);
const [{ Client }, { StreamableHTTPClientTransport }, { SSEClientTransport }, { StdioClientTransport }, types] =
  await Promise.all([
    load('client/index.js'),
    load('client/streamableHttp.js'),
    load('client/sse.js'),
    load('client/stdio.js'),
    load('types.js'),
  ]);

const LISTS = {
  tools: 'listTools', resources: 'listResources', resourceTemplates: 'listResourceTemplates', prompts: 'listPrompts',
};

class Sdk1 extends Session {
  hello() {
    const { client } = this;
    return {
      version: this.version,
      server: client.getServerVersion().name,
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    };
  }

  ping() {
    return this.client.ping();
  }

  async list(member) {
    const found = [];
    let cursor;
    do {
      const page = await this.client[LISTS[member]](cursor && { cursor });
      found.push(...page[member]);
      cursor = page.nextCursor;
    } while (cursor);
    return found;
  }

  call(name, args, options) {
    return this.client.callTool({ name, arguments: args }, undefined, options);
  }

  async callAt(level, name) {
    await this.client.setLoggingLevel(level);
    return this.call(name, {});
  }
}

function open(given, sessionId) {
  if (given.transport === 'stdio') {
    const [command, ...args] = given.command;
    return new StdioClientTransport({ command, args, env: given.env });
  }
  const url = new URL(given.url);
  return given.transport === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url, { sessionId });
}

async function connect(given, ear, sessionId) {
  const session = new Sdk1(ear, given);
  const hears = 'ElicitRequestSchema' in types;
  const capabilities = { sampling: {}, roots: { listChanged: true }, ...(hears && { elicitation: {} }) };
  const client = new Client({ name, version: '1' }, { capabilities });
  const answers = {
    CreateMessageRequestSchema: sampled,
    ListRootsRequestSchema: () => ({ roots: [ROOT] }),
    ...(hears && { ElicitRequestSchema: answer }),
  };
  for (const [schema, give] of Object.entries(answers)) {
    client.setRequestHandler(types[schema], ({ method, params }) => {
      session.asked.push({ method, params });
      return give(params);
    });
  }
  client.fallbackNotificationHandler = async ({ method, params }) => ear.hear(method, params);
  client.onerror = error => ear.troubles.push(String(error));
  const transport = open(given, sessionId);
  // The package always offers the newest revision that it knows.
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    if (message.method === 'initialize') message.params.protocolVersion = given.offer;
    return send(message, options);
  };
  const set = transport.setProtocolVersion?.bind(transport);
  session.version = given.offer;
  transport.setProtocolVersion = version => {
    session.version = version;
    set?.(version);
  };
  if (sessionId) set?.(given.offer);
  await client.connect(transport);
  return Object.assign(session, { client, transport });
}

await walk(connect);
