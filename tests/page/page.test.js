'use strict';
// The page in a browser: every screen in every size, scheme and role; what it does; what it must never do.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');

const Tarantool = require('tarantool-driver');

const { ADMIN_PASSWORD, Server } = require('../js/server');
const { TIMEOUT, follow, gaps, inaccessible, launch, open, overflow, picture, prefixed, secretOf, visit } = require('./browser');

/** 2^53 + 1, which a double cannot hold. */
const LONG = '9007199254740993';
const HOSTILE = '<img src=x onerror="noteFault(\'a payload ran\')"><script>noteFault("a payload ran")</script>';
const TURNED = 'abc\u202edef\u0007\u200bghi';

const WIDTHS = [375, 1440];
/** Widths at which a screen is only looked at for its shape, and the ones of these with pictures. */
const BETWEEN = [320, 480, 640, 752, 768, 880, 900, 1024, 1100, 1151, 1152, 1280, 1407, 1408, 1440, 1920];
const PICTURED = [768, 1100];
const SCHEMES = ['light', 'dark'];
const ROLES = ['viewer', 'operator', 'administrator'];
/** An operator sees a part of what an administrator sees: two of the four forms are enough. */
const isShown = (role, scheme, width) => role !== 'operator' || (scheme === 'dark') === (width === 375);


describe('the page', () => {
  let server;
  let browser;
  let address;
  let admin;
  const tokens = {};

  /** Asks the HTTP door as the administrator. */
  const ask = async (method, place, body) => {
    const response = await fetch(`${address}${place}`, {
      method,
      headers: { Authorization: `Bearer ${tokens.administrator}`, 'Content-Type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${place}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
  const put = async (tube, task) => (await ask('POST', `v1/tubes/${encodeURIComponent(tube)}/tasks`, task)).id;
  const stateOf = async (tube, id) => (await ask('GET', `v1/tubes/${tube}/tasks/${id}`)).state;
  const call = (name, ...args) => admin.call(name, ...args);

  before(async () => {
    server = await Server.start();
    address = `http://127.0.0.1:${server.httpPort}/`;
    browser = await launch();
    admin = await server.connectAdmin();
    for (const role of ['viewer', 'operator', 'administrator']) {
      const made = await call('lycosa.token.add', `test-${role}`, { role, tubes: ['*'] });
      tokens[role] = secretOf(made);
    }
    const made = await call('lycosa.token.add', 'mail-only', { role: 'operator', tubes: ['mail'] });
    tokens.mail = secretOf(made);
    await call('queue.create_tube', 'mail', 'fifottl');
    await call('queue.create_tube', 'orders', 'utubettl');
    await call('queue.create_tube', 'plain', 'fifo');
    await call('queue.create_tube', 'paused', 'fifottl');
    await call('queue.create_tube', 'bulk', 'fifottl');
    await call('queue.create_tube', 'single', 'fifottl');
    await call('queue.create_tube', 'many', 'fifottl');
    await call('queue.create_tube', 'empty', 'fifo');
    await call('queue.create_tube', 'held', 'fifottl');
    await call('queue.create_tube', 'odd', 'fifo');
    await call('queue.create_tube', 'failed', 'fifottl');
    // A map with a number for a key, bytes, an extension: what JSON cannot say.
    await put('odd', { payload_msgpack: Buffer.from('8407c402beef01d4057fa17803a166cb7ff8000000000000', 'hex').toString('base64') });
    for (let number = 0; number < 12; number += 1) await put('mail', { payload: { to: 'ann', number } });
    await put('mail', { payload: HOSTILE });
    await put('mail', `{"payload": {"id": ${LONG}, "text": ${JSON.stringify(TURNED)}}}`);
    await put('mail', { payload_base64: Buffer.from([0, 1, 2, 255, 254]).toString('base64') });
    await put('mail', { payload: 'later', delay: 3600 });
    await call('queue.tube.mail:take', 0, { extended: true });
    await call('queue.tube.mail:bury', 0, { reason: `exit code 3: ${HOSTILE} ${TURNED}` });
    await call('queue.tube.mail:take', 0, { extended: true });
    for (const utube of ['ann', 'ann', 'bob']) await put('orders', { payload: { for: utube }, utube });
    await call('queue.tube.orders:take', 0);
    await put('paused', { payload: 1 });
    await call('queue.tube.paused:pause', { reason: HOSTILE });
    await put('bulk', { payload: 0 });
    await call('queue.tube.mail:apply', 'kick', { all: true, state: 'buried', error: 'nothing' }, { reason: 'a job for the list' });
    for (let number = 0; number < 5; number += 1) await put('failed', { payload: { number }, pri: 7 });
    for (const [id, reason] of [[0, 'no such host'], [1, 'no such host'], [2, 'HTTP status 500\nat line 7'], [3, 'no such host'], [4, 'no such host: b']]) {
      await call('queue.tube.failed:apply', 'bury', { id_from: id, id_to: id }, { reason });
    }
    const tasks = Array.from({ length: 120 }, (_, number) => ({ payload: { number } }));
    await ask('POST', 'v1/tubes/many/tasks', tasks);
  });

  after(async () => {
    await browser?.close();
    admin?.disconnect();
    await server?.stop();
  });

  const SHOWN = [
    ['overview', '', 'Flow'],
    ['tubes', 'tubes', 'mail'],
    ['tubes-filtered-out', 'tubes?filter=nothing', 'Nothing matches'],
    ['tube', 'tubes/mail', 'Why no task is handed out'],
    ['tube-paused', 'tubes/paused', 'paused'],
    ['tube-with-sub-queues', 'tubes/orders', 'Why no task is handed out'],
    ['task-buried', 'tubes/mail/tasks/0', 'exit code 3'],
    ['task-taken', 'tubes/mail/tasks/1', 'taken'],
    ['task-blocked', 'tubes/orders/tasks/1', 'blocked'],
    ['task-gone', 'tubes/mail/tasks/4711', 'finished or deleted'],
    ['tasks', 'tubes/mail/tasks', 'looked at'],
    ['tasks-filtered', 'tubes/mail/tasks?state=buried&attempts_from=1', 'exit code 3'],
    ['tasks-filtered-out', 'tubes/mail/tasks?error=nothing', 'Nothing matches'],
    ['tasks-none', 'tubes/empty/tasks', 'The tube has no task'],
    ['jobs', 'tubes/mail/jobs', 'Kick'],
    ['job', 'tubes/mail/jobs/1', 'looked at'],
    ['issues', 'issues', 'buried task'],
    ['sessions', 'sessions', 'orders'],
    ['instance', 'instance', 'Turns of the loop'],
    ['audit', 'audit', 'pause'],
    ['jobs-of-all-tubes', 'jobs', 'Past'],
    ['task-msgpack', 'tubes/odd/tasks/0', 'MessagePack'],
  ];

  /** Screens that need an administrator's token. */
  const GUARDED = [
    ['tokens', 'tokens', 'test-viewer'],
    ['settings', 'settings', 'http.listen'],
    ['settings-set', 'settings?changed=1', 'lycosa.toml'],
    ['log', 'log', 'HTTP on'],
    ['log-filtered-out', 'log?filter=nothing+like+this', 'Nothing matches'],
  ];

  for (const scheme of SCHEMES) {
    for (const width of WIDTHS) {
      for (const role of ROLES.filter((one) => isShown(one, scheme, width))) {
        it(`is whole and accessible: ${scheme}, ${width} px, ${role}`, TIMEOUT, async () => {
          const { context, page, faults } = await open(browser, address, { token: tokens[role], width, scheme });
          // In one form every screen is loaded by its address, as a colleague opens it; in the others it is reached as by a link.
          const isLoaded = role === 'administrator' && scheme === 'light' && width === 1440;
          const go = isLoaded ? (route) => visit(page, address, route) : (route) => follow(page, route);
          await visit(page, address, '');
          for (const [name, route, text] of role === 'administrator' ? [...SHOWN, ...GUARDED] : SHOWN) {
            await go(route);
            await page.locator('main').getByText(text).first().waitFor();
            await picture(page, `${name}-${width}-${scheme}-${role}`);
            assert.deepEqual(await inaccessible(page), [], `${name}: axe`);
            assert.ok((await overflow(page)) <= 0, `${name} is wider than ${width} px`);
            if (role === 'viewer') assert.equal(await page.locator('.act').count(), 0, `${name} has a button for a viewer`);
          }
          assert.deepEqual(faults, []);
          await context.close();
        });
      }
    }
  }

  it('has full rows at every width, and nothing that is wider than the window', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    await visit(page, address, '');
    for (const [name, route, text] of [...SHOWN, ...GUARDED]) {
      await follow(page, route);
      await page.locator('main').getByText(text).first().waitFor();
      for (const width of BETWEEN) {
        await page.setViewportSize({ width, height: 900 });
        assert.ok((await overflow(page)) <= 0, `${name} is wider than ${width} px`);
        assert.deepEqual(await gaps(page), [], `${name} at ${width} px`);
        if (PICTURED.includes(width)) await picture(page, `${name}-${width}-light-administrator`);
      }
    }
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('sends headers that bind the browser, and itself compressed', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    const answers = [];
    page.on('response', (response) => answers.push(response));
    await visit(page, address, '');
    const own = answers.filter((response) => response.status() === 200);
    let bytes = 0;
    for (const response of own) {
      const place = response.url();
      const headers = await response.allHeaders();
      assert.equal(headers['x-content-type-options'], 'nosniff', place);
      assert.equal(headers['referrer-policy'], 'no-referrer', place);
      assert.equal(headers['x-frame-options'], 'DENY', place);
      assert.equal(headers['access-control-allow-origin'], undefined, place);
      assert.equal(headers['set-cookie'], undefined, place);
      if (new URL(place).pathname.startsWith('/v1/') || place.endsWith('/health')) {
        assert.equal(headers['cache-control'], 'no-store', place);
        continue;
      }
      // The browser asks for pictures uncompressed.
      if (!place.endsWith('.svg')) assert.equal(headers['content-encoding'], 'gzip', place);
      assert.equal(headers['cross-origin-opener-policy'], 'same-origin', place);
      const policy = headers['content-security-policy'];
      for (const rule of ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]) {
        assert.ok(policy.split(';').some((one) => one.trim() === rule), `${place}: ${rule} is not in ${policy}`);
      }
      bytes += (await response.request().sizes()).responseBodySize;
    }
    assert.ok(own.length > 20 && bytes > 10_000, `${own.length} answers of ${bytes} bytes`);
    assert.ok(bytes < 150 * 1024, `the page has ${bytes} bytes`);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('asks for a token, keeps it in the tab, and forgets it', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address);
    await page.goto(address);
    const field = page.getByLabel('The secret of a token');
    await field.waitFor();
    await picture(page, 'token');
    assert.deepEqual(await inaccessible(page), []);
    await field.fill('lycosa_wrong');
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByRole('alert').getByText('token').waitFor();
    await field.fill(tokens.viewer);
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByText('test-viewer').waitFor();
    await page.reload();
    await page.getByText('test-viewer').waitFor();
    assert.deepEqual(await context.cookies(), []);
    await page.getByRole('button', { name: 'Forget token' }).click();
    await field.waitFor();
    assert.equal(await page.evaluate(() => Object.values(sessionStorage).join() + Object.values(localStorage).join()), '');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows what others wrote as text', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    const pre = page.getByLabel('Payload', { exact: true }).and(page.locator('pre'));
    await visit(page, address, 'tubes/mail/tasks/12');
    assert.equal(await pre.textContent(), HOSTILE);
    await visit(page, address, 'tubes/mail/tasks/13');
    const shown = await pre.textContent();
    assert.ok(shown.includes(`"id": ${LONG}`), shown);
    assert.ok(shown.includes('abc⟨U+202E⟩def\\u0007⟨U+200B⟩ghi'), shown);
    await visit(page, address, 'tubes/mail/tasks/14');
    assert.ok((await pre.textContent()).startsWith('00000000  00 01 02 ff fe'));
    await visit(page, address, 'tubes/mail/tasks/0');
    assert.ok((await page.getByLabel('Last error').textContent()).includes(`${HOSTILE} abc⟨U+202E⟩def⟨U+0007⟩`));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows a large payload up to a bound, and all of it when asked', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    const id = await put('bulk', { payload: 'x'.repeat(1_000_000) });
    await visit(page, address, `tubes/bulk/tasks/${id}`);
    const pre = page.getByLabel('Payload', { exact: true }).and(page.locator('pre'));
    assert.equal((await pre.textContent()).length, 64 * 1024);
    await page.getByRole('button', { name: 'Show all 977 KiB' }).click();
    await page.waitForFunction(() => document.querySelector('pre').textContent.length === 1_000_000);
    await ask('DELETE', `v1/tubes/bulk/tasks/${id}`);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('puts a task with its options', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes/orders');
    await page.getByLabel('Payload', { exact: true }).fill(`{"big": ${LONG}}`);
    await page.getByLabel('Delay seconds').fill('1800');
    await page.getByLabel('Priority').fill('7');
    await page.getByRole('textbox', { name: 'Sub-queue' }).fill('zoe');
    await page.getByRole('button', { name: 'Put', exact: true }).click();
    const told = await page.getByText(/Task \d+ is delayed/).textContent();
    const [, id] = /Task (\d+)/.exec(told);
    const response = await fetch(`${address}v1/tubes/orders/tasks/${id}`, { headers: { Authorization: `Bearer ${tokens.viewer}` } });
    const text = await response.text();
    assert.ok(text.includes(`"big":${LONG}`), text);
    const task = JSON.parse(text);
    assert.deepEqual([task.state, task.pri, task.utube], ['delayed', 7, 'zoe']);
    await page.getByLabel('Payload', { exact: true }).fill('{nonsense');
    await page.getByRole('button', { name: 'Put', exact: true }).click();
    await page.getByText('The payload is no JSON').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('pauses and resumes a tube, with a reason', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes/plain');
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByLabel('Reason, for the audit log').fill('deployment');
    await picture(page, 'dialog-pause');
    assert.deepEqual(await inaccessible(page), []);
    await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume', exact: true }).waitFor();
    await page.getByText('deployment').first().waitFor();
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('truncates only what was typed, and only for an administrator', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    await visit(page, address, 'tubes/bulk');
    await page.getByRole('button', { name: 'Truncate' }).click();
    const dialog = page.getByRole('dialog');
    const sure = dialog.getByRole('button', { name: 'Truncate' });
    assert.ok(await sure.isDisabled());
    await dialog.getByLabel('to confirm').fill('bulky');
    assert.ok(await sure.isDisabled());
    await dialog.getByLabel('to confirm').press('Enter');
    assert.equal(await stateOf('bulk', 0), 'ready');
    await dialog.getByLabel('to confirm').fill('bulk');
    await sure.click();
    await page.getByText('Truncated bulk.').waitFor();
    assert.equal(Number((await ask('GET', 'v1/tubes/bulk')).tasks.total), 0);
    await context.close();
    const other = await open(browser, address, { token: tokens.operator });
    await visit(other.page, address, 'tubes/bulk');
    await other.page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
    assert.equal(await other.page.getByRole('button', { name: 'Truncate' }).count(), 0);
    assert.deepEqual([...faults, ...other.faults], []);
    await other.context.close();
  });

  it('kicks, buries, releases, moves and deletes a task, and undoes it', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    const act = async (name, fill = async () => {}) => {
      await page.getByRole('button', { name, exact: true }).click();
      await fill();
      await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    const id = await put('single', { payload: 'x' });
    await visit(page, address, `tubes/single/tasks/${id}`);
    await act('Bury');
    assert.equal(await stateOf('single', id), 'buried');
    assert.match(await page.getByRole('link', { name: 'Undo…' }).getAttribute('href'), /^#\/tubes\/single\/jobs\/\d+$/);
    await act('Kick');
    assert.equal(await stateOf('single', id), 'ready');
    await call('queue.tube.single:take', 0);
    assert.equal(await stateOf('single', id), 'taken');
    await act('Release');
    assert.equal(await stateOf('single', id), 'ready');
    await act('Delete');
    await page.getByText('1 task changed').first().waitFor();
    await act('Undo');
    await page.getByText('1 of 1 task undone').first().waitFor();
    assert.equal(await stateOf('single', id), 'ready');
    await visit(page, address, `tubes/single/tasks/${id}`);
    await act('Move', () => page.getByLabel('To the tube').fill('paused'));
    await page.getByText('1 task changed').first().waitFor();
    assert.equal(Number((await ask('GET', 'v1/tubes/paused/status')).tasks.ready), 2);
    await visit(page, address, `tubes/single/tasks/${id}`);
    await page.getByText('finished or deleted').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('pauses and resumes chosen tubes after one question', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    const isPaused = async (tube) => (await ask('GET', `v1/tubes/${tube}/status`)).paused;
    await visit(page, address, 'tubes');
    for (const tube of ['empty', 'plain', 'paused']) await page.getByLabel(`Choose ${tube}`, { exact: true }).check();
    // A chosen row that the filter hides is not meant.
    await visit(page, address, 'tubes?filter=p');
    for (const tube of ['empty', 'plain', 'paused']) await page.getByLabel(`Choose ${tube}`, { exact: true }).check();
    await page.getByRole('searchbox').fill('pl');
    await page.getByText('1 chosen').waitFor();
    await page.getByRole('searchbox').fill('p');
    await page.getByText('3 chosen').waitFor();
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Pause 2 tubes' });
    assert.match(await dialog.textContent(), /empty.*plain/);
    await picture(page, 'tubes-pause-chosen');
    await dialog.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Paused 2 tubes.').waitFor();
    assert.deepEqual(await Promise.all(['empty', 'plain', 'mail'].map(isPaused)), [true, true, false]);
    await page.getByLabel('Choose paused', { exact: true }).uncheck();
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByRole('dialog', { name: 'Resume 2 tubes' }).getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByText('Resumed 2 tubes.').waitFor();
    assert.deepEqual(await Promise.all(['empty', 'plain', 'paused'].map(isPaused)), [false, false, true]);
    assert.deepEqual(faults, []);
    await context.close();
    const viewer = await open(browser, address, { token: tokens.viewer });
    await visit(viewer.page, address, 'tubes');
    assert.equal(await viewer.page.locator('td.choice').count(), 0);
    await viewer.context.close();
  });

  it('has keys, which a panel lists and turns off', TIMEOUT, async () => {
    for (const [width, scheme] of [[375, 'dark'], [1440, 'light']]) {
      const { context, page, faults } = await open(browser, address, { token: tokens.operator, width, scheme });
      await visit(page, address, '');
      await page.keyboard.press('?');
      const panel = page.getByRole('dialog', { name: 'Keys' });
      await panel.waitFor();
      await picture(page, `keys-${width}-${scheme}`);
      assert.deepEqual(await inaccessible(page), []);
      assert.equal(await panel.getByText('Tokens').count(), 0, 'a screen of administrators');
      await page.keyboard.press('Escape');
      await panel.waitFor({ state: 'detached' });
      await page.keyboard.press('g');
      await page.keyboard.press('t');
      await page.getByRole('heading', { name: 'Tubes', level: 1 }).waitFor();
      await page.keyboard.press('/');
      await page.keyboard.type('gip?');
      assert.equal(await page.getByRole('searchbox').inputValue(), 'gip?', 'keys of a field are its own');
      await page.getByRole('button', { name: 'Keys' }).click();
      await panel.getByLabel('Keys are on').uncheck();
      await panel.getByRole('button', { name: 'Close' }).click();
      await page.keyboard.press('?');
      await page.keyboard.press('p');
      assert.equal(await panel.count(), 0);
      await page.getByRole('button', { name: 'Pause refresh' }).waitFor();
      assert.deepEqual(faults, []);
      await context.close();
    }
  });

  it('counts first, changes all that match, and undoes it', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes/many/tasks?field=number&equals=7');
    await page.getByText('1 on this page').waitFor();
    await visit(page, address, 'tubes/many/tasks');
    await page.getByText('50 on this page').waitFor();
    assert.equal(await page.getByText('chosen:').count(), 0, 'nothing is chosen, and there are buttons for it');
    await page.getByText('All tasks of the tube:').locator('..').getByRole('button', { name: 'Bury…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Reason, for the audit log').fill('a drill');
    await dialog.getByRole('button', { name: 'Count first' }).click();
    await dialog.getByText('120 tasks would be changed').waitFor();
    await picture(page, 'dialog-bulk');
    assert.deepEqual(await inaccessible(page), []);
    assert.equal(Number((await ask('GET', 'v1/tubes/many/status')).tasks.buried), 0);
    await dialog.getByRole('button', { name: 'Bury 120 tasks' }).click();
    await page.waitForURL(/#\/tubes\/many\/jobs\/\d+$/);
    await page.getByText('120 tasks changed').first().waitFor();
    assert.equal(Number((await ask('GET', 'v1/tubes/many/status')).tasks.buried), 120);
    await ask('DELETE', 'v1/tubes/many/tasks/0');
    await page.getByRole('button', { name: 'Undo' }).click();
    await dialog.getByRole('button', { name: 'Undo' }).click();
    await page.getByText('119 of 120 tasks undone; 1 no longer exist').first().waitFor();
    await picture(page, 'job-undo');
    assert.equal(Number((await ask('GET', 'v1/tubes/many/status')).tasks.ready), 119);
    const { entries } = await ask('GET', 'v1/audit?tube=many');
    assert.ok(entries.some(({ reason }) => reason === 'a drill'));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('changes the chosen tasks alone', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes/many/tasks?state=ready&id_from=50&id_to=60');
    await page.getByText('11 on this page').waitFor();
    const whole = page.getByLabel('Choose all of this page');
    await whole.check();
    await page.getByText('11 chosen:').waitFor();
    await whole.uncheck();
    await page.getByText('chosen:').waitFor({ state: 'detached' });
    await page.getByLabel('Choose task 51').check();
    await page.getByLabel('Choose task 53').click({ modifiers: ['Shift'] });
    await page.getByText('3 chosen:').waitFor();
    assert.ok(await whole.evaluate((box) => box.indeterminate));
    await page.getByLabel('Choose task 52').uncheck();
    await page.getByText('2 chosen:').locator('..').getByRole('button', { name: 'Delete…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Count first' }).click();
    await dialog.getByRole('button', { name: 'Delete 2 tasks' }).click();
    await page.getByText('Delete: 2 tasks changed').waitFor();
    const found = await ask('POST', 'v1/tubes/many/find', { filter: { id_from: 50, id_to: 54 } });
    assert.deepEqual(found.tasks.map(({ id }) => id), ['50', '52', '54']);
    // One job has changed them, and its screen brings them back.
    await page.waitForURL(/tubes\/many\/jobs\/\d+$/);
    await page.getByRole('button', { name: 'Undo' }).first().click();
    await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
    await page.getByText('2 of 2 tasks undone').first().waitFor();
    const back = await ask('POST', 'v1/tubes/many/find', { filter: { id_from: 50, id_to: 54 } });
    assert.deepEqual(back.tasks.map(({ id }) => id), ['50', '51', '52', '53', '54']);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('leads from an error to all tasks that share it, and puts a mended copy of one', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes/failed/tasks?state=buried');
    const errors = page.getByRole('group', { name: 'Errors of this page' }).getByRole('button');
    assert.deepEqual(await errors.allTextContents(), ['no such host 3', 'HTTP status 500 1', 'no such host: b 1']);
    await errors.nth(1).click();
    await page.getByText('1 on this page').waitFor();
    await page.getByRole('button', { name: /^Error contains HTTP status 500/ }).click();
    await page.getByText('5 on this page').waitFor();
    await page.getByLabel('Task id').fill('2');
    await page.getByLabel('Task id').press('Enter');
    const alike = page.getByRole('link', { name: 'All buried tasks with this error' });
    await alike.waitFor();
    assert.equal(await alike.getAttribute('href'), '#/tubes/failed/tasks?state=buried&error=HTTP%20status%20500');
    await page.getByRole('link', { name: 'Put a copy' }).click();
    await page.getByRole('heading', { name: 'Put a copy of task 2' }).waitFor();
    const payload = page.getByLabel('Payload', { exact: true });
    await page.waitForFunction(() => document.querySelector('textarea').value !== '');
    assert.deepEqual([JSON.parse(await payload.inputValue()), await page.getByLabel('Priority').inputValue()], [{ number: 2 }, '7']);
    await picture(page, 'put-copy');
    assert.deepEqual(await inaccessible(page), []);
    await payload.fill('{"number": "two"}');
    await page.getByRole('button', { name: 'Put', exact: true }).click();
    await page.getByRole('status').getByRole('link', { name: 'Open' }).click();
    await page.getByText('"number": "two"').waitFor();
    assert.equal(await stateOf('failed', 2), 'buried');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('tells a token for one tube that the server is not ready', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.mail });
    await visit(page, address, 'issues');
    await page.getByText('This token sees its own tubes').waitFor();
    const found = await page.evaluate(async () => {
      const { issuesOf } = await import(new URL('page/issues.js', document.baseURI).href);
      const health = { reasons: [{ reason: 'read_only', detail: 'a replica' }, { reason: 'no_leader', detail: 'wait' }] };
      const lines = (seen) => issuesOf(seen).map(({ gravity, title, means }) => `${gravity}: ${title}: ${means}`);
      // What the server itself says of the instance comes before that.
      return [lines({ tubes: [], health }), lines({ tubes: [], health, instance: { issues: [] } })];
    });
    assert.deepEqual(found, [['bad: The server is not ready: no_leader: wait', 'note: This server takes no writes: a replica'], []]);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('says that a screen is for administrators', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    for (const [, route] of GUARDED) {
      await visit(page, address, route);
      await page.locator('main').getByText('Not allowed.').waitFor();
      assert.equal(await page.locator('.act').count(), 0);
    }
    assert.equal(await page.getByRole('link', { name: 'Tokens' }).count(), 0);
    assert.deepEqual(await inaccessible(page), []);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows MessagePack that JSON cannot say', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes/odd/tasks/0');
    const pre = page.getByLabel('Payload', { exact: true }).and(page.locator('pre'));
    assert.equal(await pre.textContent(), `{\n  7: b64'vu8=',\n  1: ext(5, b64'fw=='),\n  "x": 3,\n  "f": NaN\n}`);
    await page.getByRole('button', { name: 'hex', exact: true }).click();
    await page.waitForFunction(() => document.querySelector('pre').textContent.startsWith('00000000  84 07'));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows any payload as the MessagePack that is stored', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes/many/tasks/7');
    await page.getByRole('button', { name: 'MessagePack', exact: true }).click();
    // {"number": 7}
    await page.waitForFunction(() => document.querySelector('pre').textContent.startsWith('00000000  81 a6 6e 75 6d 62 65 72 07'));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('names the task that blocks a busy sub-queue', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes/orders');
    const table = page.getByRole('region', { name: 'Busiest sub-queues' });
    await table.getByText('blocked').waitFor();
    assert.equal(await table.getByRole('link', { name: 'task 0' }).getAttribute('href'), '#/tubes/orders/tasks/0');
    assert.equal(await table.locator('.reasons').count(), 1, 'the other sub-queue hands out its task');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('releases what a session holds, and ends its connection', TIMEOUT, async () => {
    const worker = new Tarantool({ host: '127.0.0.1', port: server.port, lazyConnect: true, retryStrategy: null });
    await worker.connect();
    let isClosed = false;
    worker.on('close', () => (isClosed = true));
    const ids = [await put('held', { payload: 1 }), await put('held', { payload: 2 })];
    for (const _ of ids) await worker.call('queue.tube.held:take', 0);
    const { sessions } = await ask('GET', 'v1/sessions');
    const { connections } = sessions.find(({ taken }) => taken.held === 2);
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    await visit(page, address, 'sessions?tube=held');
    await page.getByText(/^1 of \d+ sessions, 0 without a task$/).waitFor();
    await page.getByLabel('Filter').fill('no such user');
    await page.getByText('Nothing matches.').waitFor();
    await page.getByRole('button', { name: 'Show all sessions' }).click();
    const row = page.locator('tbody tr').filter({ hasText: `${connections[0].id} 127.0.0.1` });
    await row.getByRole('button', { name: 'Release all' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('2 tasks that the session has taken').waitFor();
    await dialog.getByLabel('Reason, for the audit log').fill('stuck');
    await dialog.getByRole('button', { name: 'Release all' }).click();
    await page.getByText('Released.').waitFor();
    for (const id of ids) assert.equal(await stateOf('held', id), 'ready');
    assert.ok(!isClosed, 'the worker stays connected');
    await worker.call('queue.tube.held:take', 0);
    await row.getByRole('button', { name: 'Disconnect' }).click();
    await picture(page, 'dialog-disconnect');
    assert.deepEqual(await inaccessible(page), []);
    await dialog.getByRole('button', { name: 'Disconnect' }).click();
    await page.getByText(`Connection ${connections[0].id} is closed.`).waitFor();
    await row.waitFor({ state: 'detached' });
    assert.equal(await stateOf('held', ids[0]), 'ready');
    const { entries } = await ask('GET', 'v1/audit?limit=2');
    assert.deepEqual(entries.map(({ operation }) => operation.split(' ')[0]), ['disconnect', 'release']);
    assert.deepEqual([entries[1].reason, entries[1].token], ['stuck', 'test-administrator']);
    await context.close();
    const other = await open(browser, address, { token: tokens.operator });
    await visit(other.page, address, 'sessions');
    await other.page.getByRole('button', { name: 'Release all' }).first().waitFor();
    assert.equal(await other.page.getByRole('button', { name: 'Disconnect' }).count(), 0);
    assert.deepEqual([...faults, ...other.faults], []);
    await other.context.close();
    worker.disconnect();
  });

  it('makes a token, shows its secret once, and revokes it', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    await visit(page, address, 'tokens');
    const form = page.locator('form').filter({ hasText: 'Make a token' });
    await form.getByLabel(/^Name/).fill('made-here');
    await form.getByLabel(/^Role/).selectOption('operator');
    await form.getByLabel(/^Tubes/).fill('mail, many-*');
    await form.getByLabel(/^Lives for/).fill('0.5');
    await form.getByRole('button', { name: 'Make' }).click();
    const secret = await form.locator('.secret code').textContent();
    await picture(page, 'token-made');
    assert.deepEqual(await inaccessible(page), []);
    const mine = await fetch(`${address}v1/token`, { headers: { Authorization: `Bearer ${secret}` } });
    const made = await mine.json();
    assert.deepEqual([made.name, made.role, made.tubes], ['made-here', 'operator', ['mail', 'many-*']]);
    assert.ok(made.expires > Date.now() / 1000 + 1700 && made.expires < Date.now() / 1000 + 1900, String(made.expires));
    await form.getByRole('button', { name: 'Hide' }).click();
    await page.reload();
    const row = page.locator('tbody tr').filter({ hasText: 'made-here' });
    await row.waitFor();
    assert.ok(!(await page.content()).includes(secret), 'the secret is shown once');
    await row.getByRole('button', { name: 'Revoke' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('to confirm').fill('made-here');
    await dialog.getByRole('button', { name: 'Revoke' }).click();
    await row.waitFor({ state: 'detached' });
    const after = await fetch(`${address}v1/token`, { headers: { Authorization: `Bearer ${secret}` } });
    assert.equal(after.status, 401);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows settings with their sources, and the log', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.administrator });
    await visit(page, address, 'settings');
    await page.getByLabel('Filter').fill('http.listen');
    await page.waitForURL(/filter=http.listen$/);
    const row = page.locator('tbody tr').filter({ has: page.getByText('http.listen', { exact: true }) });
    await row.getByText(`127.0.0.1:${server.httpPort}`, { exact: true }).waitFor();
    await row.getByText('lycosa.toml').waitFor();
    assert.ok(!(await page.content()).includes(ADMIN_PASSWORD));
    await visit(page, address, 'log');
    await page.getByLabel('Filter').fill('HTTP on');
    await page.getByText(/^1 of \d+, the newest first$/).waitFor();
    await page.getByLabel('Level').selectOption('ERROR');
    await page.getByText('Nothing matches.').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('pauses, resumes and cancels a job', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    const job = await ask('POST', 'v1/tubes/many/jobs', { operation: 'bury', filter: { state: 'ready', all: true }, rate: 1, reason: 'slowly' });
    await visit(page, address, 'jobs');
    await page.getByText('Unfinished: 1').waitFor();
    await page.getByRole('link', { name: new RegExp(`^${job.id} Bury`) }).click();
    const stateOfJob = async () => (await ask('GET', `v1/tubes/many/jobs/${job.id}`)).state;
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText('Bury: paused.').waitFor();
    assert.equal(await stateOfJob(), 'paused');
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByText('Bury: running.').waitFor();
    assert.equal(await stateOfJob(), 'running');
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel the job' }).click();
    await page.getByText('Bury: cancelled.').waitFor();
    assert.equal(await stateOfJob(), 'cancelled');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('runs a delayed task now', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    const id = await put('single', { payload: 'later', delay: 3600 });
    await visit(page, address, `tubes/single/tasks/${id}`);
    await page.getByRole('button', { name: 'Run now' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Run now' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal(await stateOf('single', id), 'ready');
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('gives a task another delay and priority, and takes both back', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    const id = await put('single', { payload: 'sooner', delay: 3600, pri: 7 });
    const look = () => ask('GET', `v1/tubes/single/tasks/${id}`);
    const before = await look();
    await visit(page, address, `tubes/single/tasks/${id}`);
    await page.getByRole('button', { name: 'Reschedule' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Reschedule' }).click();
    await dialog.getByText('needs the option delay').waitFor();
    await dialog.getByLabel('Delay').fill('7200');
    await dialog.getByLabel('Priority').fill(LONG);
    await dialog.getByRole('button', { name: 'Reschedule' }).click();
    await dialog.waitFor({ state: 'detached' });
    const response = await fetch(`${address}v1/tubes/single/tasks/${id}`, { headers: { Authorization: `Bearer ${tokens.viewer}` } });
    assert.match(await response.text(), new RegExp(`"pri":"?${LONG}`));
    assert.ok((await look()).due > before.due);
    await page.getByRole('link', { name: 'Undo…' }).click();
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
    await page.getByText('1 of 1 task undone').first().waitFor();
    assert.deepEqual(await look(), before);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('counts all that match as a job, for a viewer too', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes/many/tasks');
    await page.getByText('50 on this page').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Count all that match' }).count(), 0);
    await visit(page, address, 'tubes/many/tasks?id_from=1&id_to=70');
    await page.getByRole('button', { name: 'Count all that match' }).click();
    await page.getByText('70 tasks matched.').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('gives all that match another priority, where tasks have one', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await call('queue.create_tube', 'ranked', 'fifottl');
    await call('queue.create_tube', 'unranked', 'fifo');
    for (const tube of ['ranked', 'unranked']) for (const payload of ['one', 'two']) await put(tube, { payload });
    await visit(page, address, 'tubes/unranked/tasks');
    await page.getByRole('button', { name: 'Bury…' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Reschedule…' }).count(), 0);
    await visit(page, address, 'tubes/ranked/tasks?state=ready');
    await page.getByRole('button', { name: 'Reschedule…' }).click();
    await page.getByRole('dialog').getByLabel('Priority').fill('5');
    await page.getByRole('button', { name: 'Count first' }).click();
    await page.getByRole('button', { name: 'Reschedule 2 tasks' }).click();
    await page.getByText('Reschedule: done.').waitFor();
    for (const id of [0, 1]) assert.equal((await ask('GET', `v1/tubes/ranked/tasks/${id}`)).pri, 5);
    assert.deepEqual(faults, []);
    await context.close();
    for (const tube of ['ranked', 'unranked']) await call(`queue.tube.${tube}:drop`);
  });

  it('goes through pages of tasks, back and forth', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes/mail/tasks');
    await page.getByRole('button', { name: /^ready \d+$/ }).click();
    await page.waitForURL(/state=ready/);
    await page.goBack();
    await page.waitForURL((url) => !url.hash.includes('state'));
    await visit(page, address, 'tubes/many/tasks');
    await page.getByRole('button', { name: 'Next page' }).click();
    await page.waitForURL(/cursor=/);
    await page.getByRole('button', { name: 'First page' }).waitFor();
    await page.goBack();
    await page.waitForURL((url) => !url.hash.includes('cursor'));
    await page.getByText('50 on this page').waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('filters and sorts tubes in the address, with a tally', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes');
    await page.getByLabel('Filter').fill('a');
    await page.getByText(/^\d of 11$/).waitFor();
    await page.waitForURL(/#\/tubes\?filter=a$/);
    await page.getByRole('button', { name: 'ready', exact: true }).click();
    await page.waitForURL(/sort=-ready/);
    const first = page.locator('tbody tr').first();
    await first.getByText('many').waitFor();
    assert.equal(await page.locator('th[aria-sort=descending]').count(), 1);
    assert.ok(await page.getByLabel('Filter').evaluate((field) => field.value === 'a'));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('shows a token its own tubes, and says what it may not see', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.mail });
    await visit(page, address, 'tubes');
    await page.getByText('1 of 1').waitFor();
    await page.goto(`${address}#/tubes/orders`);
    await page.locator('main').getByText(/may not|not for it|Not allowed|not for/).first().waitFor();
    assert.equal(await page.locator('.act').count(), 0);
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('asks once a second, stops while it is hidden, and stays paused until it is resumed', TIMEOUT, async () => {
    const { context, page } = await open(browser, address, { token: tokens.viewer });
    let asked = 0;
    page.on('request', (request) => (asked += Number(request.url().includes('/v1/'))));
    await visit(page, address, 'tubes');
    const asks = () => page.waitForRequest(/\/v1\//);
    const grows = async () => {
      const before = asked;
      await page.waitForFunction(() => new Promise((resolve) => setTimeout(() => resolve(true), 2500)));
      return asked > before;
    };
    await asks();
    await asks();
    await page.getByRole('button', { name: 'Pause refresh' }).click();
    await page.waitForLoadState('networkidle');
    assert.ok(!(await grows()));
    const hide = (isHidden) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, isHidden);
    await hide(true);
    await hide(false);
    await page.evaluate(() => window.dispatchEvent(new Event('focus')));
    assert.ok(!(await grows()), 'the focus has ended the pause');
    await page.getByRole('button', { name: 'resume' }).click();
    await asks();
    await asks();
    await hide(true);
    await page.waitForLoadState('networkidle');
    assert.ok(!(await grows()), 'a hidden page asks');
    await hide(false);
    await asks();
    await asks();
    await context.close();
  });

  it('works below a prefix', TIMEOUT, async () => {
    const proxy = await prefixed(server.httpPort, '/queues/main/');
    const { context, page, faults } = await open(browser, proxy.address, { token: tokens.viewer });
    await visit(page, proxy.address, 'tubes/mail');
    await page.getByText('Why no task is handed out').waitFor();
    assert.deepEqual([...proxy.strays, ...faults], []);
    await context.close();
    proxy.close();
  });

  it('is used by keyboard alone', TIMEOUT, async () => {
    const { context, page, faults } = await open(browser, address, { token: tokens.operator });
    await visit(page, address, 'tubes');
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
    await page.getByRole('link', { name: 'plain' }).focus();
    await page.keyboard.press('Enter');
    // The list of tubes has a button of this name, too.
    await page.getByText('Why no task is handed out').waitFor();
    const pause = page.getByRole('button', { name: 'Pause', exact: true });
    await pause.waitFor();
    await pause.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.ok(await pause.evaluate((button) => document.activeElement === button));
    assert.deepEqual(faults, []);
    await context.close();
  });

  it('keeps what it has when the server goes away, and says how old it is', TIMEOUT, async () => {
    const { context, page } = await open(browser, address, { token: tokens.viewer });
    await visit(page, address, 'tubes');
    await context.setOffline(true);
    await page.getByText('The server does not answer').waitFor();
    assert.ok(await page.getByRole('link', { name: 'mail' }).isVisible());
    await context.setOffline(false);
    await page.getByText('The server does not answer').waitFor({ state: 'detached' });
    await context.close();
  });
});
