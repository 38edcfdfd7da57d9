'use strict';
// The page of a member of a group: who leads, who is behind, and a hand-over.

const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const { binary, environment, freePort } = require('../js/server');
const { TIMEOUT, inaccessible, launch, open, overflow, picture, visit } = require('./browser');

const MEMBERS = 3;

describe('the page of a member of a group', () => {
  const members = [];
  const tokens = {};
  let top;
  let browser;

  const lycosa = (...args) => execFileSync(binary(), args, { env: environment(), encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const status = (member) => {
    try {
      return JSON.parse(lycosa('cluster', 'status', '--data-dir', member.folder, '--json'));
    } catch {
      return {};
    }
  };
  const until = async (what, isTrue) => {
    const deadline = Date.now() + TIMEOUT.timeout;
    while (!(await isTrue())) {
      assert.ok(Date.now() < deadline, `waited in vain: ${what}`);
      await sleep(50);
    }
  };
  const leader = () => members.findIndex((member) => status(member).leads);
  const start = (member) => {
    const log = fs.openSync(path.join(top, `log-${member.listen}`), 'a');
    const args = ['serve', '--listen', member.listen, '--data-dir', member.folder, '--cluster-listen', member.address];
    args.push('--cluster-secret-file', path.join(top, 'secret'), '--http-listen', `127.0.0.1:${member.httpPort}`);
    // A busy machine starves members for longer than the default of 0.3 s, and they elect anew.
    args.push('--cluster-election-timeout', '1.5');
    member.process = spawn(binary(), args, { cwd: top, env: environment(), stdio: ['ignore', log, log] });
    fs.closeSync(log);
    member.ended = new Promise((resolve) => member.process.once('close', resolve));
  };

  before(async () => {
    top = fs.mkdtempSync(path.join(os.tmpdir(), 'lycosa-group-'));
    fs.writeFileSync(path.join(top, 'secret'), 'the secret of a test', { mode: 0o600 });
    for (let number = 0; number < MEMBERS; number += 1) {
      const folder = path.join(top, `node-${number + 1}`);
      fs.mkdirSync(folder);
      members.push({ folder, listen: `127.0.0.1:${await freePort()}`, address: `127.0.0.1:${await freePort()}`, httpPort: await freePort() });
    }
    lycosa('cluster', 'init', '--data-dir', members[0].folder, '--member-address', members[0].address);
    start(members[0]);
    await until('the first member leads', () => status(members[0]).leads);
    for (const member of members.slice(1)) {
      start(member);
      await until('a server waits', () => status(member).state === 'waiting');
      lycosa('cluster', 'add', member.address, '--data-dir', members[0].folder);
      await until('it votes', () => status(members[0]).members?.some(({ address, standing }) => address === member.address && standing === 'voter'));
    }
    await until('a member has its data', () => status(members[1]).state === 'running');
    for (const role of ['viewer', 'administrator']) {
      tokens[role] = lycosa('token', 'add', role, '--role', role, '--tube', '*', '--data-dir', members[0].folder).trim();
    }
    browser = await launch();
  });

  after(async () => {
    await browser?.close();
    for (const { process, ended } of members) {
      process?.kill('SIGKILL');
      await ended;
    }
    fs.rmSync(top, { recursive: true, force: true });
  });

  it('shows roles, and who is behind', TIMEOUT, async () => {
    for (const [scheme, width] of [['light', 1440], ['dark', 375]]) {
      // A member that does not lead shows what the leader knows.
      const address = `http://127.0.0.1:${members[2].httpPort}/`;
      const { context, page, faults } = await open(browser, address, { token: tokens.viewer, width, scheme });
      await visit(page, address, 'instance');
      const table = page.getByRole('region', { name: 'Members of the group' });
      await table.getByText('leader').waitFor();
      await page.waitForFunction(() => document.querySelectorAll('[aria-label="Members of the group"] tbody tr').length === 3);
      assert.equal(await table.getByText('voter').count(), 2);
      assert.equal(await page.locator('.act').count(), 0, 'a viewer has a button');
      await picture(page, `instance-group-${width}-${scheme}`);
      assert.deepEqual(await inaccessible(page), []);
      assert.ok((await overflow(page)) <= 0);
      assert.deepEqual(faults, []);
      await context.close();
    }
  });

  it('hands over to the member that an administrator chooses, and says who is lost', TIMEOUT, async () => {
    let first;
    let next;
    let address;
    let opened;
    const row = (number) => opened.page.getByRole('row', { name: `Node ${number + 1}` });
    // On a busy machine another member may have come to lead since the leader was asked for.
    await until('a member is chosen', async () => {
      await opened?.context.close();
      first = leader();
      next = (first + 1) % MEMBERS;
      address = `http://127.0.0.1:${members[(first + 2) % MEMBERS].httpPort}/`;
      opened = await open(browser, address, { token: tokens.administrator });
      await visit(opened.page, address, 'instance');
      const chosen = row(next).getByRole('button', { name: 'Lead' }).click({ timeout: 5000 });
      return chosen.then(() => true, () => false);
    });
    const { context, page, faults } = opened;
    assert.equal(await page.getByRole('button', { name: 'Demote' }).count(), 0, 'members elect their leader');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Reason, for the audit log').fill('new kernel');
    await picture(page, 'dialog-transfer');
    assert.deepEqual(await inaccessible(page), []);
    await dialog.getByRole('button', { name: 'Lead' }).click();
    await page.getByText(`Node ${next + 1} is asked to lead.`).waitFor();
    await row(next).getByText('leader').waitFor();
    await until('it leads', () => leader() === next);
    await visit(page, address, 'audit');
    await page.getByText(`transfer to node ${next + 1}`).waitFor();
    await page.getByText('new kernel').waitFor();
    members[first].process.kill('SIGKILL');
    await members[first].ended;
    await visit(page, address, 'issues');
    await page.getByText(`Member ${first + 1} at ${members[first].address}`).waitFor();
    await page.getByText('One more lost member stops the group').waitFor();
    await picture(page, 'issues-group');
    assert.deepEqual(faults, []);
    await context.close();
  });
});
