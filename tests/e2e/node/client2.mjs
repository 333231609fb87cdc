// @modelcontextprotocol/client 2.x; the second argument is the mode of its version negotiation.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { walk } from './walk.mjs';

const mode = process.argv[3];

await walk(
  {
    open: (url, authProvider) => ({
      client: new Client({ name: 'client2', version: '1' }, { versionNegotiation: { mode } }),
      transport: new StreamableHTTPClientTransport(new URL(url), { authProvider }),
    }),
    finish: (transport, callback) => transport.finishAuth(callback),
    call: (client, params, options) => client.callTool(params, options),
    version: ({ client }) => client.getNegotiatedProtocolVersion(),
  },
  `client2-${mode}`,
);
