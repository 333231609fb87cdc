// Both generations of the TypeScript client over standard input and output:
// node stdio.mjs '{"client": "sdk1" | "client2", "mode": ..., "command": ..., "args": [...], "env": {...}, "cwd": ...}'
// What it saw is told as JSON.

import { Client as Client2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as Transport2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const { client: generation, mode, command, args, env, cwd } = JSON.parse(process.argv[2]);
const asked = [];
const accept = async ({ params }) => {
  asked.push(params.message);
  const fields = Object.entries(params.requestedSchema.properties);
  // Of choices the first, which confirms.
  return { action: 'accept', content: Object.fromEntries(fields.map(([name, field]) => [name, field.enum?.[0] ?? true])) };
};
const capabilities = { elicitation: { form: {} } };

const [client, Transport] =
  generation === 'sdk1'
    ? [new Client1({ name: 'sdk1', version: '1' }, { capabilities }), Transport1]
    : [new Client2({ name: 'client2', version: '1' }, { capabilities, versionNegotiation: { mode } }), Transport2];
client.setRequestHandler(generation === 'sdk1' ? ElicitRequestSchema : 'elicitation/create', accept);

const call = async (name, args, options) => {
  const answer = await (generation === 'sdk1'
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options));
  if (answer.isError) throw new Error(`${name}: ${JSON.stringify(answer.content)}`);
  return answer.structuredContent;
};

const transport = new Transport({ command, args, env: { ...process.env, ...env }, cwd, stderr: 'inherit' });
await client.connect(transport);
const tools = (await client.listTools()).tools.map(tool => tool.name);
const contents = await client.readResource({ uri: 'django://shop/order' });
const page = await call('query_records', { model: 'shop.order', limit: 5 });
const made = await call('create_record', { model: 'shop.category', values: { name: 'Stdio', slug: 'stdio' } });
await call('delete_record', { model: 'shop.category', pk: made.pk });
let refused = null;
try {
  await client.readResource({ uri: 'django://shop/order/0' });
} catch (error) {
  refused = error.code;
}
const version = generation === 'sdk1' ? null : client.getNegotiatedProtocolVersion();
await client.close();
const orders = JSON.parse(contents.contents[0].text).rows.length;
console.log(JSON.stringify({ tools, orders, page, refused, version, asked: asked.length }));
