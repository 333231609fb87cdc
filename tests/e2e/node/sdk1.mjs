// @modelcontextprotocol/sdk 1.x, which most applications still use.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { walk } from './walk.mjs';

await walk(
  {
    open: (url, authProvider) => ({
      client: new Client({ name: 'sdk1', version: '1' }),
      transport: new StreamableHTTPClientTransport(new URL(url), { authProvider }),
    }),
    finish: (transport, callback) => transport.finishAuth(callback.get('code')),
    call: (client, params, options) => client.callTool(params, undefined, options),
    version: ({ transport }) => transport.protocolVersion,
  },
  'sdk1',
);
