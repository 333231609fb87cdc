// The browser of the tests, and who signs in with it.

import { chromium } from 'playwright-core';

const ARGUMENTS = [
  '--no-sandbox',
  // One process draws all pages, and none is for pictures in motion.
  '--renderer-process-limit=1',
  '--process-per-site',
  '--disable-gpu',
  '--in-process-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-extensions',
  '--disable-sync',
];

// Starts the browser, with more arguments where a program needs them.
export const launch = (executablePath, ...more) => chromium.launch({ executablePath, args: [...ARGUMENTS, ...more] });

// Signs in by the form at `url`: the password is the name of the user.
export async function signIn(page, { url, username }) {
  await page.goto(url);
  await page.fill('input[name=username]', username);
  await page.fill('input[name=password]', username);
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
}
