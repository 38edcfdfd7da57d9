'use strict';
// The page of servers with settings of their own, and of one with very many tubes.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');

const { Server } = require('../js/server');
const { TIMEOUT, launch, open, picture, secretOf, visit } = require('./browser');


describe('the page of a server with payloads that are nobody’s business', () => {
  let server;
  let browser;
  let address;
  let token;

  before(async () => {
    server = await Server.start({ settings: ['http.hide_payloads = true', 'http.badge = "green:staging <b>"'] });
    browser = await launch();
    address = `http://127.0.0.1:${server.httpPort}/`;
    const admin = await server.connectAdmin();
    token = secretOf(await admin.call('lycosa.token.add', 'admin', { role: 'administrator', tubes: ['*'] }));
    await admin.call('queue.create_tube', 'mail', 'fifottl');
    await admin.call('queue.tube.mail:put', 'a secret');
    await admin.call('queue.tube.mail:take', 0, { extended: true });
    await admin.call('queue.tube.mail:bury', 0, { reason: 'the secret was wrong' });
    admin.disconnect();
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  it('hides them until a person asks for one', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token });
    await visit(page, address, 'tubes/mail/tasks');
    await page.getByText('(hidden)').waitFor();
    await visit(page, address, 'tubes/mail/tasks/0');
    const show = page.getByRole('button', { name: 'Show the payload' });
    await show.waitFor();
    await picture(page, 'task-hidden');
    assert.ok(!/a secret|was wrong/.test(await page.locator('.payload').textContent()));
    await show.click();
    await page.getByText('a secret').waitFor();
    await page.getByRole('button', { name: 'Show the error' }).click();
    await page.getByText('the secret was wrong').first().waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('tells the servers of production from others at a glance', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token });
    await visit(page, address, 'tubes');
    const badge = page.locator('header .environment');
    assert.equal(await badge.textContent(), 'staging <b>');
    assert.match(await badge.getAttribute('class'), /green/);
    assert.equal(await page.title(), 'staging <b> · Tubes · Lycosa');
    await picture(page, 'badge');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('takes a checkpoint, demotes and promotes', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token });
    await visit(page, address, 'instance');
    const act = async (name) => {
      await page.getByRole('button', { name, exact: true }).click();
      await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
    };
    const info = async () => (await fetch(`${address}v1/info`, { headers: { Authorization: `Bearer ${token}` } })).json();
    const before = (await info()).checkpoint;
    await act('Take a checkpoint');
    await page.getByText('The checkpoint is complete.').waitFor();
    assert.notDeepEqual((await info()).checkpoint, before);
    await act('Demote');
    await page.getByText('The server takes no writes.').waitFor();
    assert.equal((await info()).ro, true);
    await page.getByText('read-only').first().waitFor();
    await act('Promote');
    await page.getByText('The server takes writes.').waitFor();
    assert.equal((await info()).ro, false);
    assert.deepEqual(faults, []);
    await context.close();
  });
});

describe('the page of a server with 2 000 tubes', () => {
  const TUBES = 2000;
  let server;
  let browser;

  before(async () => {
    server = await Server.start({ settings: ['wal_mode = "none"'] });
    browser = await launch();
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  it('filters, sorts and counts them', TIMEOUT, async () => {
    const admin = await server.connectAdmin();
    const token = secretOf(await admin.call('lycosa.token.add', 'viewer', { role: 'viewer', tubes: ['*'] }));
    for (let number = 0; number < TUBES; number += 1) await admin.call('queue.create_tube', `tube-${number}`, 'fifo');
    await admin.call('queue.tube.tube-1234:put', 'x');
    const address = `http://127.0.0.1:${server.httpPort}/`;
    const { context, page, faults } = await open(browser, address, { token });
    await visit(page, address, 'tubes?sort=-ready');
    await page.getByText('2,000 of 2,000').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 100);
    await page.locator('tbody tr').first().getByText('tube-1234').waitFor();
    await page.getByLabel('Filter').fill('tube-19');
    await page.getByText('111 of 2,000').waitFor();
    await page.getByRole('button', { name: 'Show all 111' }).click();
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 111);
    await picture(page, 'tubes-many');
    assert.deepEqual(faults, []);
    admin.disconnect();
    await context.close();
  });
});
