// Walks through pages in Chromium as a person does, by what is to be seen of links and buttons, and counts the clicks.
//
// Standard input: { executable, login: { url, username }, journeys: [{ name, url, actions: [action] }] }
// An action is one of { click: { role, name, most } }, where `most` takes the one whose first number in the name is the
// highest, { tab: name }, which presses Tab until what has the focus is called so, { keys: [key] }, { follow: key }, which
// leads to another page, and { drag: [name, name] }, from one link to another.
// Standard output: [{ name, clicks, tabs, stops, url, text, status, problems: [text] }]

import { readFileSync } from 'node:fs';

import { launch, signIn } from './chromium.mjs';

const MOST_TABS = 120;
const task = JSON.parse(readFileSync(0, 'utf8'));
const named = (page, name, role = 'link') => page.getByRole(role, { name: new RegExp(name) });

async function find(page, { name, role, most }) {
  const found = named(page, name, role);
  await found.first().waitFor();
  if (!most) return found.first();
  const labels = await found.evaluateAll(each => each.map(one => one.getAttribute('aria-label')));
  const numbers = labels.map(label => Number(label.match(new RegExp(name))[1].replace(/\D/g, '')));
  return found.nth(numbers.indexOf(Math.max(...numbers)));
}

async function middle(page, name) {
  const { x, y, width, height } = await named(page, name).first().boundingBox();
  return [x + width / 2, y + height / 2];
}

const doing = {
  async click(page, target, journey) {
    const found = await find(page, target);
    await Promise.all([page.waitForNavigation(), found.click()]);
    journey.clicks += 1;
  },
  async tab(page, name, journey) {
    const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
    while (!new RegExp(name).test(await focused())) {
      if (journey.tabs >= MOST_TABS) throw new Error(`no way by Tab to ${name}`);
      await page.keyboard.press('Tab');
      journey.tabs += 1;
      journey.stops.push(await focused());
    }
  },
  async keys(page, keys) {
    for (const key of keys) {
      await Promise.all([key === 'Enter' && page.waitForNavigation(), page.keyboard.press(key)]);
    }
  },
  async follow(page, key) {
    await Promise.all([page.waitForNavigation(), page.keyboard.press(key)]);
  },
  async drag(page, [from, to]) {
    await page.mouse.move(...(await middle(page, from)));
    await page.mouse.down();
    await page.mouse.move(...(await middle(page, to)), { steps: 5 });
    await Promise.all([page.waitForNavigation(), page.mouse.up()]);
  },
};

async function walk(context, { name, url, actions }) {
  const page = await context.newPage();
  const journey = { name, clicks: 0, tabs: 0, stops: [], problems: [] };
  page.on('pageerror', error => journey.problems.push(error.message));
  await page.goto(url);
  const told = () => page.getByRole('status').allInnerTexts();
  for (const action of actions) {
    const [[what, value]] = Object.entries(action);
    await doing[what](page, value, journey);
  }
  await page.waitForLoadState();
  Object.assign(journey, { url: page.url(), status: await told(), text: await page.innerText('#content') });
  await page.close();
  return journey;
}

const browser = await launch(task.executable);
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(15_000);
  await signIn(await context.newPage(), task.login);
  const results = [];
  for (const journey of task.journeys) {
    try {
      results.push(await walk(context, journey));
    } catch (error) {
      results.push({ name: journey.name, problems: [String(error)], clicks: 0, tabs: 0, url: '', text: '', status: [] });
    }
  }
  process.stdout.write(JSON.stringify(results));
} finally {
  await browser.close();
}
