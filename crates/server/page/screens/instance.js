// Instance: the server itself: its role, journal, memory, turns, and those who follow it.

import { h } from '../vendor/preact.mjs';
import { get, post } from '../api.js';
import { Bars } from '../curve.js';
import { bytes, count, duration, rate } from '../format.js';
import { buckets, quantile } from '../tubes.js';
import { may } from '../access.js';
import { Checkpoints, Expirations, Replication, Use } from '../panels.js';
import { Act, Facts, Foreign, Table } from '../ui.js';
import { Group } from '../group.js';

export const title = () => 'Instance · Lycosa';

export async function load(route, signal) {
  const [status, info, expiration] = await Promise.all([
    get('v1/status?limit=1', signal),
    get('v1/info', signal),
    get('v1/expiration', signal),
  ]);
  return { instance: status.instance, info, expiration };
}

export function draw(route, { instance, info, expiration }) {
  const { memory, requests } = instance;
  return [
    h(
      'div',
      { class: 'heading' },
      h('h1', null, 'Instance'),
      h(Steering, { isReadOnly: instance.read_only, isMember: info.election !== undefined, after: route.refresh }),
    ),
    may('administrator') && h('p', null, h('a', { href: '#/settings' }, 'Settings'), ' · ', h('a', { href: '#/log' }, 'Log'), ' · ', h('a', { href: '#/tokens' }, 'Tokens')),
    h(
      'div',
      { class: 'columns three' },
      info.election && h(Group, { election: info.election, after: route.refresh }),
      h(
        'div',
        { class: 'column' },
        h(
          'section',
          { class: 'panel' },
          h('h2', null, 'Server'),
          h(Facts, {
            facts: [
              ['Version', instance.version],
              ['State', instance.state],
              ['Queue', instance.queue_state],
              ['Takes writes', instance.read_only ? `no${info.ro_reason ? `: ${info.ro_reason}` : ''}` : 'yes'],
              ['Failure', instance.failure && h(Foreign, { text: instance.failure })],
              ['UUID', h('code', null, instance.uuid)],
              ['Process', String(instance.pid)],
              ['Up for', duration(Math.floor(instance.uptime))],
              ['Connections', `${count(instance.connections)}, ${count(instance.connections_refused)} refused`],
              ['Waiting calls', count(instance.waiting_calls)],
              ['Received, sent', `${bytes(instance.received_bytes)}, ${bytes(instance.sent_bytes)}`],
              ['Failed log-ins', count(instance.failed_logins)],
            ],
          }),
        ),
        h(Requests, { requests }),
      ),
      h(
        'section',
        { class: 'panel' },
        h('h2', null, 'Memory'),
        h(Use, { label: 'Memory in use', used: instance.memory_used, limit: instance.memory_limit }),
        h(Facts, { facts: [['Tuples', bytes(memory?.data)], ['Indexes', bytes(memory?.index)], ['Lua', bytes(instance.lua_memory)], ['Lua errors', count(instance.lua_errors)]] }),
        h('h2', null, 'Journal'),
        h(Facts, {
          facts: [
            ['Rows', count(instance.journal_rows)],
            ['Written', bytes(instance.journal_bytes)],
            ['Errors', count(instance.journal_errors)],
            ['Sync p50, p99', `${duration(quantile(instance.journal_sync, 0.5))}, ${duration(quantile(instance.journal_sync, 0.99))}`],
          ],
        }),
        h('h2', null, 'Checkpoints'),
        h(Checkpoints, { checkpoint: instance.checkpoint }),
      ),
      h(
        'section',
        { class: 'panel odd' },
        h('h2', null, 'Turns of the loop'),
        h(Bars, { label: 'How long turns took', bars: buckets(instance.turn).map(([bound, number]) => [`≤ ${duration(bound)}`, number]), show: count }),
        h('h2', null, 'Deadlines'),
        h(Facts, {
          facts: [
            ['Late p99', duration(quantile(instance.queue.lateness, 0.99))],
            ['Overdue', count(instance.queue.overdue)],
            ['Puts, 1 min', rate(instance.queue.rates.puts[0])],
          ],
        }),
      ),
      !info.election && h('section', { class: 'panel wide' }, h('h2', null, 'Replication'), h(Replication, { replication: info.replication ?? instance.replication, uuid: instance.uuid })),
      h('section', { class: 'panel wide' }, h('h2', null, 'Expiration tasks'), h(Expirations, { expiration: expiration.statistics ?? expiration.tasks })),
    ),
  ];
}

/** Requests by type. */
function Requests({ requests }) {
  const rows = Object.entries(requests)
    .filter(([, { total }]) => Number(total) > 0)
    .map(([name, { total, errors }]) =>
      h('tr', { key: name }, h('th', { scope: 'row' }, name), h('td', { class: 'number' }, count(total)), h('td', { class: 'number' }, count(errors))),
    );
  return h(
    'section',
    { class: 'panel' },
    h('h2', null, 'Requests'),
    h(Table, { caption: 'Requests', columns: [['type', 'Type'], ['total', 'Since the start', 'number'], ['errors', 'Errors', 'number']], rows }),
  );
}

function Steering({ isReadOnly, isMember, after }) {
  const act = (name, says, place, told) =>
    h(Act, {
      key: name,
      name,
      role: 'administrator',
      says,
      run: async () => {
        await post(place);
        return told;
      },
      after,
    });
  return h(
    'div',
    { class: 'buttons' },
    act('Take a checkpoint', 'The server writes a snapshot of all data while it goes on working. It answers when the snapshot is complete.', 'v1/checkpoint', 'The checkpoint is complete.'),
    // The members of a group elect who takes writes.
    !isMember && (isReadOnly
      ? act('Promote', 'The server takes writes from now on. Demote the former master first: two servers that take writes hand out tasks twice.', 'v1/promote', 'The server takes writes.')
      : act('Demote', 'The server takes no writes any more: puts and takes are refused until a server is promoted. Replicas go on following.', 'v1/demote', 'The server takes no writes.')),
  );
}
