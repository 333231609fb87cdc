// A person with a browser: signs in with Django's own form and answers the consent page as it stands.

const MAX_STEPS = 10;
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', '#x27': "'", '#39': "'" };

const unescape = text => text.replace(/&([#\w]+);/g, (all, name) => ENTITIES[name] ?? all);

const attributes = tag =>
  Object.fromEntries([...tag.matchAll(/([\w-]+)(?:="([^"]*)")?/g)].slice(1).map(([, key, value]) => [key, unescape(value ?? '')]));

function forms(page) {
  return [...page.matchAll(/<form\b([^>]*)>([\s\S]*?)<\/form>/g)].map(([, own, body]) => ({
    action: attributes(`form ${own}`).action ?? '',
    fields: [...body.matchAll(/<input\b[^>]*>/g)]
      .map(([tag]) => attributes(tag))
      .filter(input => input.name && input.type !== 'submit' && (input.type !== 'checkbox' || 'checked' in input || 'required' in input))
      .map(input => [input.name, input.value ?? '']),
    buttons: [...body.matchAll(/<button\b[^>]*>/g)].map(([tag]) => attributes(tag).name),
  }));
}

export class Browser {
  constructor(username, callback) {
    Object.assign(this, { username, callback, scopes: null, cookies: new Map() });
  }

  // Opens an authorization URL and gives the parameters that the client gets at its redirect URI.
  async authorize(url) {
    let response = await this.fetch(url);
    for (let step = 0; step < MAX_STEPS; step++) {
      const location = response.headers.get('location');
      if (location === null) {
        response = await this.submit(response);
        continue;
      }
      const target = new URL(location, response.url);
      if (target.href.startsWith(this.callback)) return target.searchParams;
      response = await this.fetch(target);
    }
    throw new Error(`${url} leads nowhere`);
  }

  async submit(response) {
    const page = await response.text();
    for (const form of forms(page)) {
      const names = form.fields.map(([name]) => name);
      if (names.includes('username')) return this.post(response, form, { username: this.username, password: this.username });
      if (form.buttons.includes('allow')) {
        form.fields = form.fields.filter(([name, value]) => name !== 'granted' || (this.scopes?.includes(value) ?? true));
        return this.post(response, form, { allow: '1' });
      }
    }
    const named = page.match(/<p class="buttons"><a [^>]*href="([^"]+)">Sign in<\/a>/);
    if (named) return this.fetch(new URL(unescape(named[1]), response.url));
    throw new Error(`no form that a person could answer: ${response.status} ${page}`);
  }

  post(page, form, answers) {
    const sent = form.fields.filter(([name]) => !(name in answers)).concat(Object.entries(answers));
    return this.fetch(new URL(form.action, page.url), {
      method: 'POST',
      body: new URLSearchParams(sent),
      headers: { referer: page.url },
    });
  }

  async fetch(url, options = {}) {
    const cookie = [...this.cookies].map(pair => pair.join('=')).join('; ');
    const response = await fetch(url, { ...options, redirect: 'manual', headers: { ...options.headers, cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
      this.cookies.set(name, value);
    }
    return response;
  }
}
