// Opens pages in Chromium, in each language, colour scheme and width, and says what is wrong with them.
//
// Standard input: { executable, login: { url, username }, languages, schemes, widths, screenshots, pages: [{ name, url, anonymous, sent }] }
// A page that is the answer to a form says so: sent is { fill: { selector: text }, tick: [selector], press: selector }.
// Standard output: [{ name, language, status, seen: { lang, dir, text }, problems: [text] }]

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // A name that the server does not know as its own.
  '--host-resolver-rules=MAP elsewhere.example 127.0.0.1',
];
const HEIGHT = 900;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const task = JSON.parse(readFileSync(0, 'utf8'));

async function signIn(browser, { url, username }) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url);
  await page.fill('input[name=username]', username);
  await page.fill('input[name=password]', username);
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
  const state = await context.storageState();
  await context.close();
  return state;
}

// Within the page: what axe finds, and whether it is wider than its window.
async function inspect() {
  const root = document.documentElement;
  // The admin's colours come gradually.
  document.getAnimations().forEach(animation => animation.finish());
  const { violations } = await axe.run(document, { resultTypes: ['violations'], preload: false });
  const found = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(node => node.html.slice(0, 160)).join(' | ')}`);
  if (root.scrollWidth > root.clientWidth) found.push(`scrolls sideways: ${root.scrollWidth} of ${root.clientWidth} px`);
  return found;
}

async function look(context, { name, url, sent }, language) {
  const page = await context.newPage();
  const problems = [];
  // A style or an image that the page's own policy forbids is said there.
  page.on('console', message => message.type() === 'error' && problems.push(`console: ${message.text()}`));
  let response = await page.goto(url);
  if (sent) {
    for (const [selector, text] of Object.entries(sent.fill ?? {})) await page.fill(selector, text);
    for (const selector of sent.tick ?? []) await page.check(selector);
    [response] = await Promise.all([page.waitForNavigation(), page.click(sent.press)]);
  }
  // What can be opened is opened, by the keyboard, and looked at as well.
  for (const summary of await page.$$('summary')) {
    await summary.focus();
    await page.keyboard.press('Enter');
  }
  const seen = await page.evaluate(() => ({
    lang: document.documentElement.lang,
    dir: document.documentElement.dir,
    text: document.body.innerText,
  }));
  const status = response?.status() ?? 0;
  const failed = `the server responded with a status of ${status}`;
  await page.evaluate(axe);
  for (const colorScheme of task.schemes) {
    await page.emulateMedia({ colorScheme });
    for (const width of task.widths) {
      await page.setViewportSize({ width, height: HEIGHT });
      problems.push(...(await page.evaluate(inspect)).map(text => `${colorScheme}, ${width} px: ${text}`));
      if (task.screenshots) {
        await page.screenshot({ path: `${task.screenshots}/${name}-${language}-${colorScheme}-${width}.png`, fullPage: true });
      }
    }
  }
  await page.close();
  return { name, language, status, seen, problems: problems.filter(text => !text.includes(failed)) };
}

const browser = await chromium.launch({ executablePath: task.executable, args: ARGUMENTS });
try {
  const storageState = await signIn(browser, task.login);
  const results = [];
  for (const locale of task.languages) {
    const own = await browser.newContext({ locale, storageState });
    const strange = await browser.newContext({ locale });
    for (const page of task.pages) results.push(await look(page.anonymous ? strange : own, page, locale));
  }
  process.stdout.write(JSON.stringify(results));
} finally {
  await browser.close();
}
