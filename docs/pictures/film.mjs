// Makes the frames of the moving picture, and still pictures of pages, in Chromium.
//
// Standard input: { executable, modules, directory, login: { url, username }, conversation, console: { url, path },
//                   stage, first, stills: [{ name, url, width, height, anonymous, fill, press, selector }] }
// Standard output: { frames: [{ file, duration }], texts: [what the stage showed], stills: [file] }

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const task = JSON.parse(readFileSync(0, 'utf8'));
const { chromium } = createRequire(`${task.modules}/`)('playwright-core');
const SIZE = { width: 1000, height: 640 };
// The admin is made for wider windows: its pages are shown a little smaller.
const ADMIN = { width: 1200, height: 672 };
const SCALE = SIZE.width / ADMIN.width;
const CLIENT = 'A chat client, connected to the example shop';
const CAPTIONS = {
  asks: 'A person asks. The model reads through the admin, as that user.',
  acts: 'An action of the admin that cannot be undone asks first.',
  shows: 'A change of many rows shows each difference before it asks.',
  undoes: 'What a write has done can be taken back.',
  logs: 'Staff see every call in the admin, and can turn any of it off.',
};

const browser = await chromium.launch({ executablePath: task.executable, args: ['--no-sandbox', '--disable-gpu'] });
const frames = [];
const texts = [];

async function signedIn() {
  const context = await browser.newContext({ locale: 'en', viewport: ADMIN });
  // The list of all models beside each page of the admin is folded.
  await context.addInitScript(() => localStorage.setItem('django.admin.navSidebarIsOpen', 'false'));
  const page = await context.newPage();
  await page.goto(task.login.url);
  await page.fill('input[name=username]', task.login.username);
  await page.fill('input[name=password]', task.login.username);
  await Promise.all([page.waitForNavigation(), page.click('[type=submit]')]);
  await page.close();
  return context;
}

async function open(context, url) {
  const page = await context.newPage();
  // Nothing moves: what is fading in is there at once.
  await page.emulateMedia({ reducedMotion: 'reduce', colorScheme: 'light' });
  await page.goto(url, { waitUntil: 'networkidle' });
  return page;
}

async function film(context) {
  const stage = await browser.newPage({ viewport: SIZE });
  await stage.goto(task.stage);
  const shoot = async (state, duration) => {
    await stage.evaluate(shown => window.show(shown), state);
    const file = `${task.directory}/frame-${String(frames.length).padStart(3, '0')}.png`;
    await stage.screenshot({ path: file });
    frames.push({ file, duration });
    texts.push(await stage.innerText('body'));
  };
  const [opening, ...parts] = task.conversation.parts;
  const said = [{ kind: 'user', text: opening.question }];
  for (const { tool, arguments: given, drawn, words } of opening.steps) {
    said.push({ kind: 'call', tool, arguments: given });
    if (words) said.push({ kind: 'words', text: words });
    if (drawn) said.push(drawn);
  }
  let caption = CAPTIONS[opening.caption];
  const chat = (more = [], draft = '') => ({ title: CLIENT, caption, said: [...said, ...more], draft });
  await shoot(chat(), 3600);
  if (task.first) return;

  for (const { question, caption: name, afresh, steps } of parts) {
    if (afresh) said.length = 0;
    for (let n = 6; n < question.length; n += 12) await shoot(chat([], question.slice(0, n)), 110);
    await shoot(chat([], question), 300);
    caption = CAPTIONS[name];
    said.push({ kind: 'user', text: question });
    await shoot(chat(), 300);
    for (const { tool, arguments: given, answer, asked, given: filled, drawn, words } of steps) {
      said.push({ kind: 'call', tool, arguments: given });
      if (asked) await agree(stage, shoot, chat, { kind: 'form', ...asked }, filled);
      if (drawn) said.push(drawn);
      said.push(...(answer.messages ?? []).map(({ text }) => ({ kind: 'done', text })));
      if (words) said.push({ kind: 'words', text: words });
      await shoot(chat(), words ? 1800 : 900);
    }
  }

  const page = await open(context, task.console.url);
  for (const { link, duration } of task.console.path) {
    const picture = `data:image/png;base64,${(await page.screenshot()).toString('base64')}`;
    const state = { title: new URL(page.url()).pathname, caption: CAPTIONS.logs, picture };
    await shoot(state, duration);
    if (!link) continue;
    const target = page.locator(link).first();
    const box = await target.boundingBox();
    const [x, y] = [box.x + Math.min(box.width / 2, 60), box.y + box.height / 2].map(length => length * SCALE);
    for (const [n, pointer] of towards(x, y).entries()) await shoot({ ...state, pointer }, n === 4 ? 400 : 80);
    await target.click();
    await page.waitForLoadState('networkidle');
  }
  await page.close();
}

// A person reads a form, fills it in and accepts.
async function agree(stage, shoot, chat, form, filled) {
  await shoot(chat([{ ...form, given: {} }]), 2200);
  const given = { ...form, given: filled };
  await shoot(chat([given]), 500);
  const [x, y] = await stage.evaluate(() => window.middle('.button.main'));
  for (const [n, pointer] of towards(x, y).entries()) {
    await shoot({ ...chat([given]), pointer }, n === 4 ? 250 : 70);
  }
  await shoot({ ...chat([{ ...given, pressed: true }]), pointer: [x, y] }, 200);
}

// Where the pointer is on its way, which ends slowly.
function towards(x, y) {
  return [4, 3, 2, 1, 0].map(left => [x + left * left * 9, y + left * left * 5]);
}

async function still(context, { name, url, width, height, fill, tick, press, selector }) {
  const page = await open(context, url);
  await page.setViewportSize({ width, height: height ?? 900 });
  if (fill) await page.$$eval('details', found => found.forEach(part => part.setAttribute('open', '')));
  for (const [field, text] of Object.entries(fill ?? {})) await page.fill(field, text);
  for (const field of tick ?? []) await page.check(field);
  if (press) await Promise.all([page.waitForNavigation(), page.click(press)]);
  await page.waitForLoadState('networkidle');
  const path = `${task.directory}/${name}.png`;
  if (selector) await page.locator(selector).first().screenshot({ path });
  else await page.screenshot({ path, fullPage: !height });
  await page.close();
  return path;
}

try {
  const context = await signedIn();
  if (task.conversation) await film(context);
  const stills = [];
  for (const wanted of task.stills ?? []) stills.push(await still(context, wanted));
  writeFileSync(1, JSON.stringify({ frames, texts, stills }));
} finally {
  await browser.close();
}
