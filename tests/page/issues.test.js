'use strict';
// Causes of trouble that are real: what HTTP, the page and `lycosa top` say of each, and what ends it.

const assert = require('node:assert/strict');
const { execFileSync, spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const { ADMIN_PASSWORD, Server, binary, environment } = require('../js/server');
const { TIMEOUT, inaccessible, launch, open, overflow, picture, secretOf, visit } = require('./browser');

/** How long a person has forgotten the tubes, in µs: longer than a task may wait or be taken. */
const FORGOTTEN = 11 * 60 * 1_000_000;

/** The largest `disk_reserve`. */
const LARGEST_RESERVE_GIB = 1024;

/** Whether the disk of the tests has more free space than the largest reserve. */
function hasVastDisk() {
  const { bavail, bsize } = fs.statfsSync(os.tmpdir());
  return bavail * bsize >= LARGEST_RESERVE_GIB * 2 ** 30;
}

const addressOf = (server) => `http://127.0.0.1:${server.httpPort}/`;

/** The issues of the server and its tubes as HTTP tells them: "gravity kind tube: title". */
async function told(server, token) {
  const response = await fetch(`${addressOf(server)}v1/status?issues=true`, { headers: { Authorization: `Bearer ${token}` } });
  const { instance, tubes } = await response.json();
  const line = (tube) => ({ gravity, kind, title }) => `${gravity} ${kind}${tube ? ` ${tube}` : ''}: ${title}`;
  return [...instance.issues.map(line()), ...tubes.flatMap(({ name, issues }) => issues.map(line(name)))];
}

/** The same as `lycosa top --once --json` prints it. */
function printed(server) {
  const password = path.join(server.folder, 'password');
  fs.writeFileSync(password, ADMIN_PASSWORD, { mode: 0o600 });
  const args = ['top', '--once', '--json', '--address', `127.0.0.1:${server.port}`, '--user', 'admin', '--password-file', password];
  const { issues } = JSON.parse(execFileSync(binary(), args, { env: environment(), encoding: 'utf8' }));
  return issues.map(({ gravity, kind, tube, title }) => `${gravity} ${kind}${tube ? ` ${tube}` : ''}: ${title}`);
}

/** Numbers that go on while the faces are asked. */
const timeless = (lines) => lines.map((line) => line.replace(/\d+(\.\d+)? (µs|ms|s|min)( \d+ s)?/g, 'T')).sort();

async function until(what, isTrue) {
  const deadline = Date.now() + TIMEOUT.timeout / 2;
  for (let seen; ; await sleep(100)) {
    seen = await isTrue();
    if (seen) return seen;
    assert.ok(Date.now() < deadline, `waited in vain: ${what}`);
  }
}

describe('what is wrong', () => {
  let server;
  let admin;
  let token;
  let browser;
  let worker;
  const lua = (text, ...args) => admin.eval(text, ...args);
  const call = (name, ...args) => admin.call(name, ...args);
  /** Waits until the issue is told, compares the faces, and returns the line. */
  const found = async (kind, tube = '') => {
    const line = await until(`${kind} ${tube}`, async () =>
      (await told(server, token)).find((text) => text.includes(` ${kind}${tube ? ` ${tube}` : ''}: `)));
    assert.ok(timeless(printed(server)).includes(timeless([line])[0]), `top lacks ${line}: ${printed(server).join('; ')}`);
    return line;
  };

  before(async () => {
    server = await Server.start();
    admin = await server.connectAdmin();
    token = secretOf(await call('lycosa.token.add', 'admin', { role: 'administrator', tubes: ['*'] }));
    browser = await launch();
    for (const name of ['forgotten', 'failed', 'asleep']) await call('queue.create_tube', name, 'fifottl');
    await call('queue.create_tube', 'stuck', 'utubettl');
    await call('queue.create_tube', 'small', 'limfifottl', { capacity: 2 });
    for (const name of ['forgotten', 'failed', 'asleep', 'small', 'small']) await call(`queue.tube.${name}:put`, 'x', { ttl: 86_400 });
    await call('queue.tube.failed:take', 0);
    await call('queue.tube.failed:bury', 0);
    await call('queue.tube.asleep:pause', { reason: 'the database moves' });
    for (const number of [0, 1, 2]) await call('queue.tube.stuck:put', number, { utube: 'ann', ttl: 86_400 });
    await call('queue.tube.stuck:take', 0, { lease: 3600 });
    // What a person finds who comes back after eleven minutes.
    await lua(
      `local ago = ...
       for _, name in ipairs {'forgotten', 'stuck'} do
         local space = box.space[name]
         local created
         for number, field in ipairs(space:format()) do
           if field.name == 'created' then created = number end
         end
         for _, task in space:pairs() do space:update(task[1], {{'-', created, ago}}) end
       end
       local leases = box.space._lycosa_leases
       for _, lease in leases:pairs() do leases:update({lease[1], lease[2]}, {{'-', 6, ago}}) end`,
      FORGOTTEN,
    );
  });

  after(async () => {
    await browser?.close();
    admin?.disconnect();
    worker?.disconnect();
    await server?.stop();
  });

  it('stands in HTTP, in top and on the page alike', TIMEOUT, async () => {
    // A worker that waits, while the only tasks stand behind one that is held.
    worker = await server.connectAdmin();
    const waiting = worker.call('queue.tube.stuck:take', 600).catch(() => {});
    const lines = [
      await found('no_worker', 'forgotten'),
      await found('buried', 'failed'),
      await found('full', 'small'),
      await found('paused', 'asleep'),
      await found('held', 'stuck'),
      await found('blocked', 'stuck'),
    ];
    assert.deepEqual(timeless(lines), timeless([
      'bad no_worker forgotten: 1 ready task and no worker',
      'warn buried failed: 1 buried task',
      'warn full small: Full: 2 tasks',
      'note paused asleep: Paused',
      'warn held stuck: A task has been taken for 11 min',
      'warn blocked stuck: The oldest ready task is blocked for 11 min',
    ]));
    assert.deepEqual(timeless(printed(server)), timeless(await told(server, token)));
    for (const [width, scheme] of [[1440, 'light'], [375, 'dark']]) {
      const { context, page, faults } = await open(browser, addressOf(server), { token, width, scheme });
      await visit(page, addressOf(server), 'issues');
      const list = page.getByRole('region', { name: 'What is wrong' });
      for (const title of ['1 ready task and no worker', '1 buried task', 'Full: 2 tasks', 'A task has been taken for', 'The oldest ready task is blocked for']) {
        await list.getByText(title).waitFor();
      }
      await list.getByText('Its sub-queue hands out no other task before it ends.').waitFor();
      assert.equal(await list.locator('li').first().getAttribute('class'), 'bad', 'the gravest stands first');
      await picture(page, `issues-real-${width}-${scheme}`);
      assert.deepEqual(await inaccessible(page), []);
      assert.ok((await overflow(page)) <= 0);
      assert.deepEqual(faults, []);
      await context.close();
    }
    worker.disconnect();
    await waiting;
    worker = null;
  });

  it('is gone once its cause is: from the first screen to the task, the act and its undo', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, addressOf(server), { token });
    await visit(page, addressOf(server), '');
    const list = page.getByRole('region', { name: 'What is wrong' });
    const stuck = list.locator('li', { hasText: 'A task has been taken for' });
    // One click to the tasks, one to the task: who holds it stands there.
    await stuck.getByRole('link', { name: 'Taken tasks' }).click();
    await page.getByRole('link', { name: '0', exact: true }).click();
    await page.getByText('lease').first().waitFor();
    await page.getByRole('button', { name: 'Release', exact: true }).click();
    await page.getByRole('dialog').getByText('There is no undo.').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Release', exact: true }).click();
    await until('the issue goes', async () => !(await told(server, token)).some((line) => line.includes('held stuck')));
    // A task that was given up: deleted by mistake, and brought back.
    await visit(page, addressOf(server), '');
    await list.locator('li', { hasText: '1 buried task' }).getByRole('link', { name: 'Buried tasks' }).click();
    await page.getByRole('link', { name: '0', exact: true }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('status').getByRole('link', { name: 'Undo…' }).click();
    await page.getByRole('button', { name: 'Undo', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Undo', exact: true }).click();
    await found('buried', 'failed');
    await visit(page, addressOf(server), 'issues');
    await list.locator('li', { hasText: 'asleep' }).getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
    await until('the issue goes', async () => !(await told(server, token)).some((line) => line.includes('paused asleep')));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('names an expiration task that fails, with its error', TIMEOUT, async () => {
    await call('queue.create_tube', 'archive', 'fifo');
    await lua(`local space = box.schema.space.create('sessions')
               space:create_index('pk')
               space:insert {1, 1}`);
    await call('expiration.start', 'old', 'sessions', { field: 2, archive_tube: 'archive', scan_time: 1 });
    await until('the first tuple goes', async () => (await lua("return box.space.sessions:len()"))[0] === 0);
    await call('queue.tube.archive:drop');
    await lua('box.space.sessions:insert {2, 1}');
    assert.equal(await found('expiration'), 'warn expiration: Expiration task old fails');
    const { context, page, faults } = await open(browser, addressOf(server), { token });
    await visit(page, addressOf(server), 'issues');
    await page.getByText('Tuples that should expire stay; the task is tried again.').waitFor();
    await page.getByText('archive').first().waitFor();
    assert.deepEqual(faults, []);
    await context.close();
    await call('expiration.stop', 'old');
    await until('it goes', async () => !(await told(server, token)).some((line) => line.includes('expiration')));
  });

  it('counts errors of programs', TIMEOUT, async () => {
    await assert.rejects(lua("error('no such customer')"));
    assert.match(await found('programs'), /^note programs: \d+ errors? of programs in the last minute$/);
  });

  it('says how far a lost replica is behind', TIMEOUT, async () => {
    // The replica knows of a taken task, and not who holds it.
    await call('queue.tube.stuck:take', 0, { lease: 3600 });
    const session = await server.connectAdmin();
    await session.call('queue.tube.forgotten:take', 0);
    const replica = await Server.start({ settings: [`replication = "127.0.0.1:${server.port}"`, 'read_only = true'] });
    const follows = async () => (await told(replica, token).catch(() => [])).join(';');
    await until('it follows', async () => /note read_only: This server takes no writes/.test(await follows()));
    assert.ok(!/ master: /.test(await follows()), await follows());
    const scrape = await fetch(`${addressOf(replica)}metrics`);
    assert.deepEqual([scrape.status, (await scrape.text()).includes('lycosa_tube_tasks{tube="forgotten",state="taken"} 1')], [200, true]);
    assert.deepEqual(timeless(printed(replica)), timeless(await told(replica, token)));
    session.disconnect();
    replica.process.kill('SIGKILL');
    await replica.ended;
    assert.match(await found('replica'), /^warn replica: Replica 2 is not connected$/);
    await call('queue.tube.forgotten:put', 'y');
    const { context, page, faults } = await open(browser, addressOf(server), { token });
    await visit(page, addressOf(server), 'issues');
    await page.getByText(/It is \d+ rows? behind: a promotion now would lose them\./).waitFor();
    await picture(page, 'issues-replica');
    assert.deepEqual(faults, []);
    await context.close();
    await replica.launch();
    await until('it is back', async () => !(await told(server, token)).some((line) => line.includes(' replica: ')));
    // A master that is gone is the replica's issue.
    server.process.kill('SIGSTOP');
    try {
      await until('the replica tells', async () => /bad master: Replication from /.test(await follows()));
    } finally {
      server.process.kill('SIGCONT');
    }
    await until('it follows again', async () => !/ master: /.test(await follows()));
    await replica.stop();
  });

  it('measures a slow disk', { ...TIMEOUT, skip: spawnSync('strace', ['-V']).status !== 0 && 'strace is not installed' }, async () => {
    const tracer = spawn('strace', ['-f', '-qq', '-o', path.join(server.folder, 'strace'), '-e', 'trace=fdatasync', '-e', 'signal=none', '-e', 'inject=fdatasync:delay_enter=250000', '-p', String(server.process.pid)]);
    const ended = new Promise((resolve) => tracer.once('close', resolve));
    try {
      let line;
      await until('the sync is slow', async () => {
        await call('queue.tube.failed:put', 'x');
        line = (await told(server, token)).find((text) => text.includes(' sync: '));
        return line;
      });
      assert.match(line, /^(warn|bad) sync: The disk is slow: a sync takes /);
      assert.ok(timeless(printed(server)).includes(timeless([line])[0]));
    } finally {
      tracer.kill('SIGTERM');
      await ended;
    }
  });
});

describe('a disk without free space', () => {
  let server;
  let browser;

  before(async () => {
    server = await Server.start();
    browser = await launch();
  });

  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  it('is told with the checkpoint that may help', { ...TIMEOUT, skip: hasVastDisk() && 'the disk has more than 1 TiB free' }, async () => {
    const admin = await server.connectAdmin();
    const token = secretOf(await admin.call('lycosa.token.add', 'admin', { role: 'administrator', tubes: ['*'] }));
    admin.disconnect();
    server.process.kill('SIGTERM');
    await server.ended;
    server.settings = [`disk_reserve = "${LARGEST_RESERVE_GIB}GiB"`];
    await server.launch();
    const line = await until('the disk is short', async () => (await told(server, token)).find((text) => text.includes(' disk: ')));
    assert.match(line, /^bad disk: The disk is short: .* free$/);
    assert.deepEqual(timeless(printed(server)), timeless(await told(server, token)));
    const { context, page, faults } = await open(browser, addressOf(server), { token, width: 375, scheme: 'dark' });
    await visit(page, addressOf(server), '');
    await page.getByText('The disk is short').waitFor();
    await page.getByRole('button', { name: 'Take a checkpoint' }).waitFor();
    await picture(page, 'overview-disk-375-dark');
    assert.deepEqual(await inaccessible(page), []);
    assert.deepEqual(faults, []);
    await context.close();
  });
});
