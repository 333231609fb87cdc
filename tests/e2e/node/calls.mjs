// Calls tools with a token, by an official client that can ask its user and open pages for them.
//
// The argument is { client: 'client2' | 'sdk1', mode, url, token, calls: [{ name, arguments }], reads }; it writes
// { version, asked, results, contents }. If it `reads`, it reads each resource that a result links to.

const task = JSON.parse(process.argv[2]);
const isNew = task.client === 'client2';
const root = isNew ? '@modelcontextprotocol/client' : '@modelcontextprotocol/sdk';
const { Client, StreamableHTTPClientTransport } = isNew
  ? await import(root)
  : { ...(await import(`${root}/client/index.js`)), ...(await import(`${root}/client/streamableHttp.js`)) };

const capabilities = { elicitation: { form: {}, url: {} } };
const options = isNew ? { capabilities, versionNegotiation: { mode: task.mode } } : { capabilities };
const client = new Client({ name: task.client, version: '1' }, options);
const asked = [];
const accept = request => {
  asked.push(request.params);
  return { action: 'accept' };
};
if (isNew) {
  client.setRequestHandler('elicitation/create', accept);
} else {
  const { ElicitRequestSchema } = await import(`${root}/types.js`);
  client.setRequestHandler(ElicitRequestSchema, accept);
}
const headers = { Authorization: `Bearer ${task.token}` };
const transport = new StreamableHTTPClientTransport(new URL(task.url), { requestInit: { headers } });
await client.connect(transport);
const results = [];
for (const call of task.calls) results.push(await client.callTool(call));
const links = task.reads ? results.flatMap(result => result.content).filter(block => block.type === 'resource_link') : [];
const contents = [];
for (const { uri } of links) contents.push((await client.readResource({ uri })).contents);
const version = isNew ? client.getNegotiatedProtocolVersion() : transport.protocolVersion;
console.log(JSON.stringify({ version, asked, results, contents }));
await client.close();
process.exit(0);
