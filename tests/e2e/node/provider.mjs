// The part of a client application that both generations of the SDK ask for: what was granted, and a way to a browser.

import { Browser } from './browser.mjs';

// Nothing listens there: the browser looks at the redirect and goes no further.
export const CALLBACK = 'http://127.0.0.1:33418/callback';

export class Provider {
  constructor(name, username) {
    Object.assign(this, { name, signIns: 0, browser: new Browser(username, CALLBACK) });
  }

  get redirectUrl() {
    return CALLBACK;
  }

  get clientMetadata() {
    return {
      client_name: this.name,
      redirect_uris: [CALLBACK],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    };
  }

  state() {
    return 'state-of-the-test';
  }

  clientInformation() {
    return this.client;
  }

  saveClientInformation(client) {
    this.client = client;
  }

  tokens() {
    return this.granted;
  }

  saveTokens(tokens) {
    this.granted = tokens;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  codeVerifier() {
    return this.verifier;
  }

  // The SDK counts on the application to come back with the parameters of the redirect.
  async redirectToAuthorization(url) {
    this.signIns += 1;
    this.callback = await this.browser.authorize(url);
    if (this.callback.get('state') !== this.state()) throw new Error('the state came back changed');
  }

  // Makes the server refuse the token that the client holds.
  spoilAccessToken() {
    this.granted = { ...this.granted, access_token: 'spoiled' };
  }
}
