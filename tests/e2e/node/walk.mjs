// What a session does, told as JSON: the Python test that started it compares this with the database.
//
// `sdk` is { open(provider): { client, transport }, call(client, params, options), version(client, transport) }, the few
// places where the two generations of the SDK differ.

import { Provider } from './provider.mjs';

const listed = async (fetchPage, member) => {
  const found = [];
  let cursor;
  do {
    const page = await fetchPage(cursor === undefined ? undefined : { cursor });
    found.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
};

class Session {
  constructor(sdk, url, provider) {
    Object.assign(this, { sdk, url, provider });
  }

  // Connects as an application does: the first try may send the person to the browser.
  async connect() {
    Object.assign(this, this.sdk.open(this.url, this.provider));
    try {
      await this.client.connect(this.transport);
    } catch (error) {
      if (!this.provider.callback) throw error;
      await this.finish();
      Object.assign(this, this.sdk.open(this.url, this.provider));
      await this.client.connect(this.transport);
    }
    return this;
  }

  async finish() {
    const callback = this.provider.callback;
    this.provider.callback = undefined;
    await this.sdk.finish(this.transport, callback);
  }

  async call(name, args, options) {
    return this.sdk.call(this.client, { name, arguments: args }, options);
  }

  // The structured result of a tool that must not fail.
  async result(name, args, options) {
    const answer = await this.call(name, args, options);
    if (answer.isError) throw new Error(`${name}: ${JSON.stringify(answer.content)}`);
    return answer.structuredContent;
  }

  async error(attempt) {
    try {
      await attempt();
    } catch (error) {
      return { code: error.code, message: error.message };
    }
    return null;
  }
}

const pkColumn = page => page.rows.map(row => row[0]);

async function lists(session) {
  const { client } = session;
  const tools = await listed(params => client.listTools(params), 'tools');
  const resources = await listed(params => client.listResources(params), 'resources');
  const templates = await listed(params => client.listResourceTemplates(params), 'resourceTemplates');
  const prompts = await listed(params => client.listPrompts(params), 'prompts');
  return {
    tools: tools.map(tool => tool.name),
    resources: resources.map(resource => resource.uri),
    templates: templates.map(template => template.uriTemplate),
    prompts: prompts.map(prompt => prompt.name),
  };
}

async function everyCity(session) {
  const keys = [];
  let cursor;
  do {
    const page = await session.result('query_records', {
      model: 'places.city', fields: ['geonameid', 'name'], limit: 200, ...(cursor && { cursor }),
    });
    keys.push(...pkColumn(page));
    cursor = page.next_cursor;
  } while (cursor);
  return keys;
}

async function everyCountry(session) {
  const keys = [];
  let uri = 'django://places/country';
  while (uri) {
    const page = JSON.parse((await session.client.readResource({ uri })).contents[0].text);
    keys.push(...pkColumn(page));
    uri = page.next;
  }
  return keys;
}

async function write(session) {
  const slug = `made-by-${session.provider.name}`;
  const created = await session.result('create_record', { model: 'shop.category', values: { name: slug, slug } });
  const row = { model: 'shop.category', pk: String(created.pk) };
  const updated = await session.result('update_record', { ...row, values: { name: `${slug}, changed` } });
  const preview = await session.result('delete_record', row);
  const deleted = await session.result('delete_record', { ...row, confirm_token: preview.confirm_token });
  return { pk: created.pk, created, updated, preview, deleted };
}

async function act(session, given) {
  const shipped = await session.call('mark_shipped_shop_order', { pks: [given.paid] });
  const asked = await session.result('refund_shop_order', { pks: [given.refundable] });
  const refunded = await session.result('refund_shop_order', {
    pks: [given.refundable], confirm_token: asked.confirm_token, form: { reason: 'late', amount: '1.00' },
  });
  const progress = [];
  await session.result('recalculate_totals_shop_order', { pks: given.orders }, { onprogress: told => progress.push(told) });
  return { shipped: shipped.structuredContent, asked, refunded, progress };
}

// The data side beyond single rows: expressions, aggregates, inlines, versions, many rows at once, keys, a ViewSet.
async function data(session, { customer, product }) {
  const name = session.provider.name;
  const text = answer => answer.content[0].text;
  const expression = {
    created__gte: '2025-01-01', or: [{ total__gte: '1000' }, { status: ['paid', 'pending'], not: { country: 'DE' } }],
  };
  const found = await session.result('query_records', {
    model: 'shop.order', filters: expression, fields: ['number'], limit: 200,
  });
  const top = await session.result('aggregate_records', {
    model: 'shop.order', aggregates: ['sum:total', 'count'], group_by: ['country', 'created:year'], top: 5,
  });
  const described = await session.result('describe_model', { model: 'shop.order,shop.shipment' });
  const lines = [{ product, quantity: 2, unit_price: '10.50' }];
  const values = { number: `N-${name}`, customer, lines };
  const create = { model: 'shop.order', values, idempotency_key: `key-${name}` };
  const made = await session.result('create_record', create);
  const repeated = await session.result('create_record', create);
  const row = { model: 'shop.order', pk: String(made.pk) };
  const { version } = await session.result('update_record', { ...row, values: { note: 'Once' }, version: made.version });
  const stale = await session.call('update_record', { ...row, values: { note: 'Lost' }, version: made.version });
  const { history } = await session.result('get_record', { ...row, history: true });
  const many = { model: 'shop.order', filters: { number: `N-${name}` }, values: { note: 'Twice', status: 'paid' } };
  const preview = await session.result('update_record', many);
  const bulk = await session.result('update_record', { ...many, confirm_token: preview.confirm_token });
  const action = { model: 'shop.order', action: 'mark_shipped', filters: { number: `N-${name}` } };
  const shown = await session.result('run_action', action);
  const shipped = await session.result('run_action', { ...action, confirm_token: shown.confirm_token });
  const deletion = await session.result('delete_record', row);
  const reviews = [];
  let rest = {};
  do {
    const page = await session.result('list_reviews', { page_size: 50, ...rest });
    reviews.push(...page.results.map(review => review.id));
    rest = page.next;
  } while (rest);
  return {
    found: pkColumn(found), top, described, made, repeated, version, stale: { isError: stale.isError, text: text(stale) },
    history, preview, bulk, shown, shipped, deletion, reviews,
  };
}

async function fail(session) {
  const mended = await session.call('query_records', { model: 'shop.nothing' });
  return {
    mended: { isError: mended.isError, text: mended.content[0].text },
    tool: await session.error(() => session.call('no_such_tool', {})),
    resource: await session.error(() => session.client.readResource({ uri: 'django://shop/order/999999999' })),
    prompt: await session.error(() => session.client.getPrompt({ name: 'no_such_prompt' })),
  };
}

// A person who withholds the scope to write at first, and is asked again when it is needed.
async function stepUp(sdk, url, name) {
  const provider = new Provider(`${name}-stepper`, 'admin');
  provider.browser.scopes = ['mcp:read'];
  const session = await new Session(sdk, url, provider).connect();
  const before = provider.granted.scope;
  provider.browser.scopes = null;
  const slug = `stepped-up-${name}`;
  const create = () => session.result('create_record', { model: 'shop.category', values: { name: slug, slug } });
  const refusal = await session.error(create);
  if (provider.callback) {
    await session.finish();
  } else {
    // SDK 1 spends its refresh token on the scopes that it has already, so that the application has to sign in again.
    provider.granted = undefined;
    await session.client.close();
    await session.connect();
  }
  await create();
  await session.client.close();
  return { before, after: provider.granted.scope, signIns: provider.signIns, slug, refusal };
}

export async function walk(sdk, name) {
  const { url, paid, refundable, orders, order, customer, product } = JSON.parse(process.argv[2]);
  const provider = new Provider(name, 'admin');
  const session = await new Session(sdk, url, provider).connect();
  const told = {
    version: sdk.version(session),
    signIns: provider.signIns,
    registered: Boolean(provider.client?.client_id),
    scope: provider.granted.scope,
    lists: await lists(session),
    cities: await everyCity(session),
    countries: await everyCountry(session),
    query: await session.result('query_records', {
      model: 'shop.order', filters: { status: 'cancelled' }, fields: ['number', 'status', 'total'], limit: 200, count: true,
    }),
    record: await session.result('get_record', { model: 'shop.order', pk: String(order) }),
    prompt: await session.client.getPrompt({ name: 'triage_order', arguments: { order: String(order) } }),
    written: await write(session),
    acted: await act(session, { paid, refundable, orders }),
    failed: await fail(session),
    data: await data(session, { customer, product }),
  };
  const spoiled = provider.granted.access_token;
  provider.spoilAccessToken();
  await lists(session);
  told.refreshed = { changed: provider.granted.access_token !== spoiled, signIns: provider.signIns };
  await session.client.close();
  told.steppedUp = await stepUp(sdk, url, name);
  process.stdout.write(JSON.stringify(told));
}
