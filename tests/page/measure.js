'use strict';
// Measures the page: `LYCOSA_BIN=target/release/lycosa NODE_PATH=.test-env/node/node_modules node tests/page/measure.js [TASKS [TUBES]]`.
//
// Prints the first paint and the time of each screen with many tasks and tubes, and what a hundred open pages cost the server in
// processor time. No test: docs/page.md has the figures.

const fs = require('node:fs');
const http = require('node:http');

const { Server } = require('../js/server');
const { launch, open } = require('./browser');

const TASKS = Number(process.argv[2] ?? 10_000_000);
const TUBES = Number(process.argv[3] ?? 2_000);
const PAGES = 100;
const SECONDS = 10;
const ROUNDS = 5;

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const middle = (numbers) => [...numbers].sort((one, other) => one - other)[Math.floor(numbers.length / 2)];

/** Processor time in seconds of the process's threads, by name. */
function processor(pid) {
  const spent = {};
  for (const thread of fs.readdirSync(`/proc/${pid}/task`)) {
    const stat = fs.readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
    spent[name] = (spent[name] ?? 0) + (Number(fields[11]) + Number(fields[12])) / 100;
  }
  return spent;
}

/** What an open page asks each second, over a connection of its own, with the ETags of the answers before. */
function openPage(port, token, places, tally) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const tags = new Map();
  const ask = (place) =>
    new Promise((resolve, reject) => {
      const headers = { Authorization: `Bearer ${token}`, 'Cache-Control': 'max-age=1', ...(tags.has(place) && { 'If-None-Match': tags.get(place) }) };
      const request = http.get({ host: '127.0.0.1', port, path: place, agent, headers }, (response) => {
        if (response.headers.etag) tags.set(place, response.headers.etag);
        tally.answers += 1;
        response.on('end', resolve).resume();
      });
      request.on('error', reject);
    });
  let isOpen = true;
  const run = async () => {
    await sleep(Math.random());
    while (isOpen) {
      for (const place of places) await ask(place);
      await sleep(1);
    }
    agent.destroy();
  };
  const ended = run();
  return () => {
    isOpen = false;
    return ended;
  };
}

async function main() {
  const server = await Server.start({ settings: ['wal_mode = "none"', 'memory_limit = "8GiB"'] });
  const admin = await server.connectAdmin();
  const token = (await admin.call('lycosa.token.add', 'measure', { role: 'administrator', tubes: ['*'] })).flat()[0].secret;
  const address = `http://127.0.0.1:${server.httpPort}/`;
  const browser = await launch();
  try {
    await admin.call('queue.create_tube', 'big', 'fifottl');
    for (let number = 0; number < 20; number += 1) await admin.call('queue.create_tube', `small-${number}`, 'fifottl');
    const pid = server.process.pid;
    const cost = async (places) => {
      const before = processor(pid);
      const tally = { answers: 0 };
      const pages = Array.from({ length: PAGES }, () => openPage(server.httpPort, token, places, tally));
      await sleep(2);
      const begun = processor(pid);
      const first = tally.answers;
      await sleep(SECONDS);
      const after = processor(pid);
      const rate = (tally.answers - first) / SECONDS;
      await Promise.all(pages.map((close) => close()));
      const spent = Object.entries(after).map(([name, time]) => [name, ((time - (begun[name] ?? before[name] ?? 0)) / SECONDS) * 100]);
      const shown = spent.filter(([, part]) => part >= 0.05).map(([name, part]) => `${name} ${part.toFixed(1)} %`);
      return `${shown.join(', ')} at ${rate.toFixed(0)} answers a second`;
    };
    const costs = async (tubes) => {
      console.log(`${PAGES} overviews, ${tubes} tubes, of a core: ${await cost(['/health', '/v1/overview'])}`);
      console.log(`${PAGES} screens of a tube, of a core: ${await cost(['/health', '/v1/tubes/big/status?history=true', '/v1/tubes/big/explain'])}`);
    };
    await costs(21);

    for (let number = 0; number < TUBES - 21; number += 1) await admin.call('queue.create_tube', `tube-${number}`, 'fifo');
    const batch = 1000;
    const payload = Array.from({ length: batch }, () => [{ user: 'ann', kind: 'welcome' }]);
    let left = TASKS;
    while (left > 0) {
      const several = payload.slice(0, Math.min(batch, left));
      await admin.call('queue.tube.big:put_many', several);
      left -= several.length;
    }
    await admin.call('queue.tube.big:take', 0);
    console.log(`${TASKS} tasks in one of ${TUBES} tubes`);
    await costs(TUBES);

    const paints = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const { context, page } = await open(browser, address, { token });
      await page.goto(address);
      await page.locator('.figures').first().waitFor();
      paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
      await context.close();
    }
    console.log(`first paint: ${middle(paints).toFixed(0)} ms (${paints.map((paint) => paint.toFixed(0)).join(', ')})`);

    const { page } = await open(browser, address, { token });
    await page.goto(address);
    await page.locator('.figures').first().waitFor();
    const routes = ['', 'tubes', 'tubes?sort=-ready', 'tubes/big', 'tubes/big/tasks', 'tubes/big/tasks?state=ready', 'tubes/big/tasks/5000000', 'tubes/big/tasks?field=user&equals=bob', 'tubes/big/jobs', 'issues', 'sessions', 'jobs', 'audit', 'instance', 'settings', 'log', 'tokens'];
    for (const route of routes) {
      const times = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        await page.evaluate(() => (location.hash = '#/nothing'));
        await page.getByText('No screen has this address').waitFor();
        times.push(
          await page.evaluate(async (hash) => {
            const begun = performance.now();
            location.hash = hash;
            await new Promise((resolve) => requestAnimationFrame(resolve));
            while (document.querySelector('.loading') || document.querySelector('main .empty a[href="#/"]')) await new Promise((resolve) => requestAnimationFrame(resolve));
            return performance.now() - begun;
          }, `#/${route}`),
        );
      }
      console.log(`#/${route}: ${middle(times).toFixed(0)} ms (${times.map((time) => time.toFixed(0)).join(', ')})`);
    }
    const info = await (await fetch(`${address}v1/status?limit=1`, { headers: { Authorization: `Bearer ${token}` } })).json();
    console.log(`turns of the loop: ${JSON.stringify(info.instance.turn)}`);
  } finally {
    await browser.close();
    admin.disconnect();
    await server.stop();
  }
}

main();
