'use strict';
// A Chromium of the test's own, and pages that note everything that a page must not do.

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const { chromium } = require('playwright-core');

const AXE = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const ILLUSTRATIONS = path.resolve(__dirname, '../../target/page');

/** Debian's browser, or the one that LYCOSA_TEST_CHROMIUM names. */
function launch() {
  return chromium.launch({
    executablePath: process.env.LYCOSA_TEST_CHROMIUM || '/usr/bin/chromium-headless-shell',
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
  });
}

/** A test that takes longer hangs, and so does a page that shows nothing for so long, in milliseconds. A machine with other work is slow. */
const TIMEOUT = { timeout: 1_800_000 };
const LONGEST_WAIT = 600_000;

/** What went wrong in each tab, for a test that waits in vain. */
const FAULTS = new WeakMap();

/** A tab that has typed a token, on a screen of this size. `faults` collects what went wrong in it. */
async function open(browser, address, { token, width = 1440, scheme = 'light' } = {}) {
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: scheme,
    reducedMotion: 'reduce',
    serviceWorkers: 'block',
    timezoneId: 'Europe/Berlin',
    locale: 'en-US',
  });
  context.setDefaultTimeout(LONGEST_WAIT);
  const faults = [];
  context.on('request', (request) => {
    if (new URL(request.url()).host !== new URL(address).host) faults.push(`asks another host: ${request.url()}`);
    if (token && request.url().includes(token)) faults.push(`a token stands in an address: ${request.url()}`);
  });
  await context.exposeBinding('noteFault', (_, text) => faults.push(text));
  await context.addInitScript((secret) => {
    document.addEventListener('securitypolicyviolation', (event) =>
      window.noteFault(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
    );
    // A blank page has no storage.
    if (location.protocol === 'about:') return;
    if (secret && !sessionStorage.getItem('lycosa.token')) sessionStorage.setItem('lycosa.token', secret);
  }, token);
  const page = await context.newPage();
  FAULTS.set(page, faults);
  page.on('pageerror', (error) => faults.push(`script: ${error.stack ?? error}`));
  page.on('dialog', (dialog) => {
    faults.push(`a dialog of a payload: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('console', (message) => {
    const isRefusal = message.text().includes('the server responded with a status of');
    if (message.type() === 'error' && !isRefusal) faults.push(`console: ${message.text()}`);
  });
  return { context, page, faults };
}

/** Loads the page at a screen and waits until it shows what the server said. */
async function visit(page, address, route) {
  if (page.url() !== 'about:blank') await page.goto('about:blank');
  await page.goto(`${address}#/${route}`);
  await shown(page);
}

/** Goes to another screen of the loaded page, as a link does, and waits until it shows what the server said. */
async function follow(page, route) {
  await page.evaluate(
    (hash) =>
      new Promise((done) => {
        if (location.hash === hash) return done();
        // The page's own listener came first, and has drawn the new screen two frames later.
        const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
        window.addEventListener('hashchange', drawn, { once: true });
        location.hash = hash;
      }),
    `#/${route}`,
  );
  await shown(page);
}

async function shown(page) {
  try {
    await page.locator('main h1').first().waitFor({ state: 'attached' });
    await page.locator('.health').waitFor();
    await page.waitForFunction(() => !document.querySelector('.loading'));
  } catch (error) {
    const [visibility, text] = await page.evaluate(() => [document.visibilityState, document.body.innerText]);
    throw new Error(`${page.url()}, ${visibility}, shows: ${text.slice(0, 500)}; faults: ${FAULTS.get(page)?.join('; ')}`, { cause: error });
  }
}

/** What axe-core finds, a line for each element. Axe is half a megabyte to read: only documents that it looks at have it. */
async function inaccessible(page) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(AXE);
  const violations = await page.evaluate(async () => {
    const options = { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'], resultTypes: ['violations'] };
    const { violations } = await window.axe.run(document, options);
    return violations.map(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}: ${failureSummary}`));
  });
  return violations.flat();
}

/** The page is no wider than its window. */
function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

/** Rows of figures and of curves with empty space at their end, and short texts that are broken into lines. */
function gaps(page) {
  return page.evaluate(() => {
    const found = [];
    // As long as a figure gets.
    for (const { firstChild } of document.querySelectorAll('.figure b')) firstChild.data = '23 h 59 min';
    for (const grid of document.querySelectorAll('.figures, .curves')) {
      const { right: edge } = grid.getBoundingClientRect();
      const ends = new Map();
      for (const one of grid.children) {
        const { top, right } = one.getBoundingClientRect();
        ends.set(Math.round(top), Math.max(ends.get(Math.round(top)) ?? 0, right));
      }
      for (const [top, right] of ends) {
        if (edge - right > 2) found.push(`${grid.className}: ${Math.round(edge - right)} px are empty in the row at ${top}`);
      }
    }
    for (const text of document.querySelectorAll('.figure b, .figure .note, .controls button, nav a')) {
      const height = text.getBoundingClientRect().height;
      const line = parseFloat(getComputedStyle(text).lineHeight);
      const padding = parseFloat(getComputedStyle(text).paddingTop) * 2;
      if (height > 1.8 * line + padding) found.push(`${text.textContent} is broken into lines`);
    }
    return found;
  });
}

/** A picture of the whole page, for people who look at it: into the folder that LYCOSA_SCREENS names, if it names one. */
async function picture(page, name) {
  const folder = process.env.LYCOSA_SCREENS;
  if (!folder) return;
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.jpeg`), fullPage: true, type: 'jpeg', quality: 90 });
}

/** A picture of the window for the documents: into the folder that LYCOSA_PICTURES names, else into `target/page`. */
async function illustration(page, name) {
  const folder = process.env.LYCOSA_PICTURES || ILLUSTRATIONS;
  fs.mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `page-${name}.png`);
  await page.screenshot({ path: file });
  return fs.statSync(file).size;
}

/** The secret in the answer of `lycosa.token.add`; the driver may wrap each value in an array. */
const secretOf = (made) => made.flat()[0].secret;

/** A proxy that serves everything of `port` below a prefix and nothing beside it. */
async function prefixed(port, prefix) {
  const strays = [];
  const server = http.createServer((request, response) => {
    if (!request.url.startsWith(prefix)) {
      strays.push(request.url);
      response.writeHead(404).end();
      return;
    }
    const options = { port, host: '127.0.0.1', method: request.method, headers: request.headers };
    const onward = http.request({ ...options, path: `/${request.url.slice(prefix.length)}` }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${server.address().port}${prefix}`;
  return { address, strays, close: () => server.close() };
}

module.exports = { TIMEOUT, follow, gaps, illustration, inaccessible, launch, open, overflow, picture, prefixed, secretOf, visit };
