'use strict';
// The page while workers work: at every moment its numbers fit together, at every halt they equal a recount. Pictures for the documents.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const { Server } = require('../js/server');
const { TIMEOUT, illustration, launch, open, visit } = require('./browser');

const TUBES = ['mail', 'thumbnails', 'invoices', 'webhooks', 'search-index'];
const WORKERS = 8;
/** Cycles of a worker between two halts. */
const CYCLES = 150;
const HALTS = 4;
/** Tasks of a batch, and pictures of the page that a run of batches lasts. */
const BATCH = 250;
const PICTURES = 3;
/** Bytes of a picture in the documents. */
const MAX_PICTURE = 160 * 1024;

describe('the page while workers work', () => {
  let server;
  let browser;
  let address;
  let admin;
  let token;

  const connect = () => server.connectAdmin();
  const ask = async (method, place, body) => {
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    const response = await fetch(`${address}${place}`, { method, headers, body: JSON.stringify(body) });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${place}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
  /** Tasks of a state, counted one by one. */
  const recount = async (tube, state) => {
    let job = await ask('POST', `v1/tubes/${tube}/jobs`, { operation: 'count', filter: { state } });
    while (job.state === 'running') job = await ask('GET', `v1/tubes/${tube}/jobs/${job.id}`);
    assert.equal(job.state, 'done');
    return Number(job.matched);
  };

  before(async () => {
    server = await Server.start({ settings: ['wal_mode = "write"'] });
    address = `http://127.0.0.1:${server.httpPort}/`;
    browser = await launch();
    admin = await connect();
    token = (await admin.call('lycosa.token.add', 'ann', { role: 'administrator', tubes: ['*'] })).flat()[0].secret;
    for (const tube of TUBES) await admin.call('queue.create_tube', tube, 'fifottl');
  });

  after(async () => {
    await browser?.close();
    admin?.disconnect();
    await server?.stop();
  });

  it('equals a recount at every halt, and fits together at every moment', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token });
    await visit(page, address, 'tubes/mail');
    // Each picture of the screen: tasks by state, and the calls that made and ended tasks.
    await page.evaluate(() => {
      const number = (text) => Number(text.replaceAll(',', ''));
      window.seen = [];
      const look = () => {
        const shown = {};
        for (const figure of document.querySelectorAll('a.figure')) shown[figure.querySelector('.name').textContent] = number(figure.querySelector('b').textContent);
        for (const row of document.querySelectorAll('[aria-label="Operations"] tbody tr')) shown[`calls ${row.cells[0].textContent}`] = number(row.cells[1].textContent);
        window.seen.push(shown);
      };
      new MutationObserver(look).observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true });
    });
    const workers = await Promise.all(Array.from({ length: WORKERS }, connect));
    let shown;
    // Of this many calls of put: an earlier picture may have the same tasks.
    const equalsRecount = async (puts) => {
      const counted = { 'calls put': puts };
      for (const state of ['ready', 'taken', 'delayed', 'buried']) counted[state] = await recount('mail', state);
      await page.waitForFunction(
        (wanted) => Object.entries(wanted).every(([name, number]) => window.seen.at(-1)?.[name] === number),
        counted,
      );
      shown = await page.evaluate(() => window.seen.at(-1));
    };
    for (let halt = 0; halt < HALTS; halt += 1) {
      await Promise.all(
        workers.map(async (worker, at) => {
          for (let cycle = 0; cycle < CYCLES; cycle += 1) {
            await worker.call('queue.tube.mail:put', { worker: at, cycle }, cycle % 10 === 0 ? { delay: 3600 } : {});
            const [id] = (await worker.call('queue.tube.mail:take', 0)).flat();
            // Delayed tasks leave some workers without one.
            if (id === undefined || id === null) continue;
            if (cycle % 7 === 0) await worker.call('queue.tube.mail:bury', id);
            else if (cycle % 11 !== 0) await worker.call('queue.tube.mail:ack', id);
          }
        }),
      );
      await equalsRecount(WORKERS * CYCLES * (halt + 1));
    }
    // Batches, as fast as the server takes them, while the page draws some pictures.
    const pictures = () => page.evaluate(() => new Set(window.seen.map((one) => one['calls put'])).size);
    const enough = (await pictures()) + PICTURES;
    const payloads = Array.from({ length: BATCH }, (_, number) => number);
    let batches = 0;
    let isOver = false;
    const rush = workers.map(async (worker) => {
      while (!isOver) {
        await worker.call('queue.tube.mail:put_many', payloads);
        batches += 1;
        const tasks = await worker.call('queue.tube.mail:take_many', BATCH, 0);
        await worker.call('queue.tube.mail:ack_many', tasks.map(([id]) => id));
      }
    });
    while ((await pictures()) < enough) await sleep(100);
    isOver = true;
    await Promise.all(rush);
    await equalsRecount(WORKERS * CYCLES * HALTS + BATCH * batches);
    const seen = await page.evaluate(() => window.seen);
    const whole = seen.filter((one) => one['calls put'] !== undefined);
    assert.ok(new Set(whole.map((one) => one['calls put'])).size >= HALTS, `${whole.length} pictures`);
    for (const one of whole) {
      const tasks = one.ready + one.taken + one.delayed + one.buried;
      assert.equal(tasks, one['calls put'] - (one['calls ack'] ?? 0), JSON.stringify(one));
    }
    assert.equal(shown['calls put'], WORKERS * CYCLES * HALTS + BATCH * batches);
    for (const worker of workers) worker.disconnect();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('is pictured for the documents', TIMEOUT, async () => {
    const put = (tube, count, payload) => ask('POST', `v1/tubes/${tube}/tasks`, Array.from({ length: count }, (_, number) => ({ payload: payload(number) })));
    await put('thumbnails', 240, (number) => ({ image: `cats/${number}.jpg`, size: 320 }));
    await put('invoices', 12, (number) => ({ customer: number, month: '2026-11' }));
    await put('webhooks', 35, (number) => ({ url: `https://example.com/hooks/${number}` }));
    await admin.call('queue.tube.invoices:pause', { reason: 'the ledger is closed' });
    await admin.call('queue.tube.webhooks:apply', 'bury', { id_from: 0, id_to: 3, all: true }, { reason: 'no such host: example.com' });
    for (const [name, route, text] of [
      ['overview', '', 'Flow'],
      ['tubes', 'tubes', 'thumbnails'],
      ['tasks', 'tubes/webhooks/tasks?state=buried', 'no such host'],
      ['task', 'tubes/webhooks/tasks/0', 'no such host'],
    ]) {
      const { context, page, faults } = await open(browser, address, { token, width: 1100, scheme: 'light' });
      await visit(page, address, route);
      await page.locator('main').getByText(text).first().waitFor();
      const bytes = await illustration(page, name);
      assert.ok(bytes > 5_000 && bytes < MAX_PICTURE, `${name}: ${bytes} bytes`);
      assert.deepEqual(faults, []);
      await context.close();
    }
  });
});
