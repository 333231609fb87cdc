// Opens a list of calls in Chromium, waits until it says that there are new ones, and adds them by a click.
//
// Standard input: { executable, login: { url, username }, url }, and a line for each time that there are new calls: this
// program writes "open" when the list is open, and in the end { said, unchanged, added, kept, focus, isQuiet, problems }.

import readline from 'node:readline';

import { launch, signIn } from './chromium.mjs';

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => (await lines.next()).value;
const task = JSON.parse(await next());
const browser = await launch(task.executable);
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
const problems = [];
page.on('pageerror', error => problems.push(error.message));
await signIn(page, task.login);
await page.goto(task.url);
const keys = () => page.$$eval('.mcp-calls tbody tr', rows => rows.map(row => row.dataset.pk));
const before = await keys();
console.log('open');
await next();
const link = page.locator('.mcp-new a:not([hidden])');
await link.waitFor();
const said = await link.textContent();
const unchanged = JSON.stringify(await keys()) === JSON.stringify(before);
await link.click();
await page.locator('.mcp-added').first().waitFor();
const after = await keys();
console.log(JSON.stringify({
  said,
  unchanged,
  added: await page.locator('.mcp-added').count(),
  kept: before.every(key => after.includes(key)),
  focus: await page.evaluate(() => document.activeElement.closest('tr')?.classList.contains('mcp-added')),
  isQuiet: await page.locator('.mcp-new a').isHidden(),
  problems,
}));
await browser.close();
process.exit(0);
