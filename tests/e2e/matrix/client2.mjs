// @modelcontextprotocol/client 2.x, in both eras.

import { Client, LOG_LEVEL_META_KEY, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { Session, ROOT, answer, sampled, walk } from './walk.mjs';

const LISTS = {
  tools: 'listTools', resources: 'listResources', resourceTemplates: 'listResourceTemplates', prompts: 'listPrompts',
};

class Client2 extends Session {
  hello() {
    const { client } = this;
    return {
      version: client.getNegotiatedProtocolVersion(),
      server: client.getServerVersion().name,
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    };
  }

  // The newest revision has no ping.
  async ping() {
    return this.given.modern ? {} : this.client.ping();
  }

  // The package walks the pages itself.
  async list(member) {
    return (await this.client[LISTS[member]]())[member];
  }

  call(name, args, options) {
    return this.client.callTool({ name, arguments: args }, options);
  }

  async callAt(level, name) {
    if (this.given.modern) return this.client.callTool({ name, arguments: {}, _meta: { [LOG_LEVEL_META_KEY]: level } });
    await this.client.setLoggingLevel(level);
    return this.call(name, {});
  }

  async watch(uris, lists = []) {
    if (!this.given.modern) return super.watch(uris);
    const asked = Object.fromEntries(lists.map(kind => [`${kind}ListChanged`, true]));
    const subscription = await this.client.listen({ ...asked, ...(uris.length && { resourceSubscriptions: uris }) });
    return () => subscription.close();
  }
}

function open(given, sessionId) {
  if (given.transport === 'stdio') {
    const [command, ...args] = given.command;
    return new StdioClientTransport({ command, args, env: given.env });
  }
  const url = new URL(given.url);
  if (given.transport === 'sse') return new SSEClientTransport(url);
  return new StreamableHTTPClientTransport(url, { sessionId, ...(sessionId && { protocolVersion: given.offer }) });
}

async function connect(given, ear, sessionId) {
  const session = new Client2(ear, given);
  const client = new Client(
    { name: 'client2', version: '1' },
    {
      capabilities: { sampling: {}, roots: { listChanged: true }, elicitation: {} },
      versionNegotiation: { mode: given.modern ? 'auto' : 'legacy' },
    },
  );
  const answers = {
    'sampling/createMessage': sampled,
    'roots/list': () => ({ roots: [ROOT] }),
    'elicitation/create': answer,
  };
  for (const [method, give] of Object.entries(answers)) {
    client.setRequestHandler(method, ({ params }) => {
      session.asked.push({ method, params });
      return give(params);
    });
  }
  client.fallbackNotificationHandler = async ({ method, params }) => ear.hear(method, params);
  client.onerror = error => ear.troubles.push(String(error));
  const transport = open(given, sessionId);
  if (!given.modern) {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      if (message.method === 'initialize') message.params.protocolVersion = given.offer;
      return send(message, options);
    };
  }
  await client.connect(transport);
  return Object.assign(session, { client, transport });
}

await walk(connect);
