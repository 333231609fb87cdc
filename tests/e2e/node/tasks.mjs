// @modelcontextprotocol/ext-tasks on the second generation of the official client: makes the calls that it is given,
// all at once, and tells how each went. The argument is JSON: url, token, and the calls by name. A call has a tool with
// params, or resumes a task that was left. It may have answers by field, leave its task to somebody else, or cancel it
// when it has heard how far it is.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';

const { url, token, calls } = JSON.parse(process.argv[2]);
const clientInfo = { name: 'ext-tasks', version: '1' };
const capabilities = { elicitation: { form: {} } };

// Sends what the official client would not let through, as its schemas know no tasks: by its transport, past itself.
function dispatcher(transport) {
  const waiting = new Map();
  const others = transport.onmessage;
  let last = 0;
  transport.onmessage = (message, extra) => {
    const answer = waiting.get(message.id);
    if (answer === undefined) return others(message, extra);
    waiting.delete(message.id);
    answer(message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result });
  };
  return (request, { signal, context } = {}) => new Promise((resolve, reject) => {
    const id = `raw-${++last}`;
    waiting.set(id, resolve);
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
    transport.send({ jsonrpc: '2.0', id, ...request }, { headers: context?.headers, requestSignal: signal }).catch(reject);
  });
}

async function run({ tool, params, answers, leave, resume, cancel }) {
  const told = { statuses: [], messages: [], asked: [] };
  const options = { applicationContext: { asked: told.asked, answers } };
  const execution = resume
    ? await session.resumeTask(resume, options)
    : await session.callTool(tool, params, options);
  told.kind = execution.kind;
  if (leave) {
    await execution.handoff(reference => { told.reference = reference; });
    return told;
  }
  const onEvent = async ({ type, task }) => {
    if (type !== 'task') return;
    told.statuses.push(task.status);
    told.ttl = task.retentionMs;
    told.pollInterval = task.suggestedPollIntervalMs;
    if (!task.statusMessage) return;
    told.messages.push(task.statusMessage);
    if (cancel && task.status === 'working') await execution.cancel();
  };
  const { outcome } = await execution.settle({ onEvent });
  told.outcome = outcome.status;
  told.result = outcome.result;
  told.error = outcome.error && { code: outcome.error.code, message: outcome.error.message };
  return told;
}

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client(clientInfo, { versionNegotiation: { mode: 'auto' }, capabilities });
await client.connect(transport);
const session = createTaskSessionFromClient(client, {
  endpointId: 'tests',
  rawDispatch: dispatcher(transport),
  v2RequestFraming: {
    protocolVersion: client.getNegotiatedProtocolVersion(),
    clientInfo,
    clientCapabilities: capabilities,
  },
  onInputRequest: async ({ params }, { applicationContext: { asked, answers } }) => {
    asked.push(params.message);
    const fields = Object.keys(params.requestedSchema.properties);
    return { action: 'accept', content: Object.fromEntries(fields.map(field => [field, answers[field]])) };
  },
});
const named = Object.entries(calls).map(async ([name, call]) => [name, await run(call)]);
const told = Object.fromEntries(await Promise.all(named));
await session.close();
await client.close();
console.log(JSON.stringify(told));
