// Opens pages in Chromium, in each language, colour scheme and width, and says what is wrong with them.
//
// Standard input: { executable, login: { url, username }, languages, schemes, widths, screenshots, within, also, pages: [{ name, url, anonymous, sent, copies }] }
// `within` selects the part of a page that is ours: what is beside it is not looked at.
// A page that is the answer to a form says so: sent is { fill: { selector: text }, tick: [selector], press: selector }.
// Standard output: [{ name, language, status, seen: { lang, dir, text }, problems: [text] }]

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { launch, signIn } from './chromium.mjs';

const HEIGHT = 900;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const task = JSON.parse(readFileSync(0, 'utf8'));

async function signedIn(browser) {
  const context = await browser.newContext();
  await signIn(await context.newPage(), task.login);
  const state = await context.storageState();
  await context.close();
  return state;
}

// Within the page: what axe finds in it, or in the part that is ours; `rules` are those that are looked for, or all; `also` those that axe leaves out by itself.
async function inspect({ within, rules, also }) {
  // The admin's colours come gradually.
  document.getAnimations().forEach(animation => animation.finish());
  const options = { resultTypes: ['violations'], preload: false, rules: Object.fromEntries((also ?? []).map(rule => [rule, { enabled: true }])) };
  const { violations } = await axe.run(within && document.querySelector(within) ? { include: [within] } : document, rules ? { ...options, runOnly: rules } : options);
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(node => node.html.slice(0, 160)).join(' | ')}`);
}

// Within the page: whether it is wider than its window, and whether a text of ours is cut or touches that of another place.
function measure(within) {
  const CLOSE = 2;
  const PLACES = 'td, th, li, dt, dd, button, summary, label, h1, h2, h3, p, option';
  const root = document.documentElement;
  const found = root.scrollWidth > root.clientWidth ? [`scrolls sideways: ${root.scrollWidth} of ${root.clientWidth} px`] : [];
  // Eye and Tab meet buttons in one order.
  const isRtl = getComputedStyle(root).direction === 'rtl';
  for (const row of document.querySelectorAll('.buttons')) {
    const places = [...row.children].map(button => button.getBoundingClientRect());
    const follows = (at, before) => at.top >= before.bottom || (isRtl ? at.right <= before.left : at.left >= before.right);
    if (places.slice(1).some((at, n) => !follows(at, places[n]))) found.push(`buttons: another order than that of Tab: ${row.innerText}`);
  }
  const texts = [];
  for (const place of within ? document.querySelectorAll(within) : []) {
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.data.trim() || parent.closest('.visually-hidden, script, select, svg, textarea') || !parent.checkVisibility()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const whole = range.getBoundingClientRect();
      const box = { left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity };
      let cut = false;
      let isHidden = false;
      for (let each = parent; each && each !== document.body; each = each.parentElement) {
        const { overflowX, overflowY, textOverflow } = getComputedStyle(each);
        if (overflowX === 'visible' && overflowY === 'visible') continue;
        const edge = each.getBoundingClientRect();
        // It is there for screen readers alone.
        isHidden ||= edge.width <= 1 || edge.height <= 1;
        const isBeyond = whole.right > edge.right + CLOSE || whole.left < edge.left - CLOSE;
        cut ||= isBeyond && ['hidden', 'clip'].includes(overflowX) && textOverflow !== 'ellipsis';
        box.left = Math.max(box.left, edge.left);
        box.right = Math.min(box.right, edge.right);
        box.top = Math.max(box.top, edge.top);
        box.bottom = Math.min(box.bottom, edge.bottom);
      }
      if (isHidden) continue;
      if (cut) found.push(`cut: ${node.data.trim().slice(0, 60)}`);
      for (const rect of range.getClientRects()) {
        const shown = {
          left: Math.max(rect.left, box.left),
          right: Math.min(rect.right, box.right),
          top: Math.max(rect.top, box.top),
          bottom: Math.min(rect.bottom, box.bottom),
        };
        if (shown.right - shown.left > 1 && shown.bottom - shown.top > 1) texts.push({ ...shown, place: parent.closest(PLACES) ?? parent, text: node.data.trim().slice(0, 40) });
      }
    }
  }
  texts.sort((one, other) => one.top - other.top);
  for (const [index, one] of texts.entries()) {
    for (let next = index + 1; next < texts.length && texts[next].top < one.bottom; next++) {
      const other = texts[next];
      if (one.place === other.place || one.place.contains(other.place) || other.place.contains(one.place)) continue;
      const lines = Math.min(one.bottom, other.bottom) - other.top;
      const isBeside = lines > Math.min(one.bottom - one.top, other.bottom - other.top) / 3;
      if (isBeside && one.left < other.right + CLOSE && other.left < one.right + CLOSE) found.push(`runs together: ${one.text} | ${other.text}`);
    }
  }
  return [...new Set(found)];
}

async function look(page, { name, url, sent, copies }, language) {
  const problems = [];
  // A style or an image that the page's own policy forbids is said there.
  const hear = message => message.type() === 'error' && problems.push(`console: ${message.text()}`);
  page.on('console', hear);
  await page.setViewportSize({ width: 1280, height: HEIGHT });
  // Some looks of the admin ask for the scheme but once.
  await page.emulateMedia({ colorScheme: task.schemes[0] });
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
  if (copies) {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.focus('.copy');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.copy').textContent !== document.querySelector('[data-copy]').dataset.copy);
    seen.copied = await page.evaluate(() => navigator.clipboard.readText());
  }
  const status = response?.status() ?? 0;
  const failed = `the server responded with a status of ${status}`;
  await page.evaluate(axe);
  // Everything is looked for once, the narrowest window last; of another scheme the colours, in that window.
  const [narrowest, ...wider] = task.widths;
  // Colours are the same in each language.
  const schemes = task.screenshots || language === task.languages[0] ? task.schemes : task.schemes.slice(0, 1);
  for (const [number, colorScheme] of schemes.entries()) {
    await page.emulateMedia({ colorScheme });
    for (const width of number && !task.screenshots ? [narrowest] : [...wider, narrowest]) {
      await page.setViewportSize({ width, height: HEIGHT });
      const found = number ? [] : await page.evaluate(measure, task.within);
      if (width === narrowest) {
        const rules = number ? ['color-contrast'] : undefined;
        found.push(...(await page.evaluate(inspect, { within: task.within, rules, also: task.also })));
      }
      problems.push(...found.map(text => `${colorScheme}, ${width} px: ${text}`));
      if (task.screenshots) {
        await page.screenshot({ path: `${task.screenshots}/${name}-${language}-${colorScheme}-${width}.png`, fullPage: true });
      }
    }
  }
  page.off('console', hear);
  return { name, language, status, seen, problems: problems.filter(text => !text.includes(failed)) };
}

// A name that the server does not know as its own.
const browser = await launch(task.executable, '--host-resolver-rules=MAP elsewhere.example 127.0.0.1');
try {
  const storageState = await signedIn(browser);
  const results = [];
  for (const locale of task.languages) {
    const own = await (await browser.newContext({ locale, storageState })).newPage();
    const strange = await (await browser.newContext({ locale })).newPage();
    for (const page of task.pages) results.push(await look(page.anonymous ? strange : own, page, locale));
  }
  process.stdout.write(JSON.stringify(results));
} finally {
  await browser.close();
}
