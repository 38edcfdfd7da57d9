// Panels of the instance: checkpoints, replication, expiration tasks.

import { h } from './vendor/preact.mjs';
import { bytes, count, duration, of } from './format.js';
import { Facts, Foreign, Moment, Table } from './ui.js';

/** How much of a bound is in use. */
export function Use({ label, used, limit }) {
  if (!Number(limit)) return h('p', null, bytes(used));
  return h(
    'p',
    { class: 'progress' },
    h('progress', { max: Number(limit), value: Number(used), 'aria-label': label }),
    ` ${bytes(used)} of ${bytes(limit)}`,
  );
}

export function Checkpoints({ checkpoint }) {
  if (!checkpoint) return h('p', { class: 'hint' }, 'None.');
  const { state, count: taken, failures, failure, longest_pause_us: pause, last } = checkpoint;
  return [
    h(Use, { label: 'Disk in use', used: checkpoint.disk_used, limit: checkpoint.disk_bound }),
    h(Facts, {
      facts: [
        ['State', state],
        ['Failure', failure && h('strong', { class: 'bad-text' }, h(Foreign, { text: failure }))],
        ['Last', last ? h(Moment, { at: last.time }) : 'none since the start'],
        ['Its size', last && `${of(last.rows, 'row')}, ${bytes(last.bytes)}`],
        ['It took', last && duration(Number(last.duration_us) / 1e6)],
        ['Since the start', `${count(taken)}, ${count(failures)} failed`],
        ['Journal since', `${bytes(checkpoint.journal_bytes)} of ${bytes(checkpoint.journal_limit)}`],
        ['Longest pause', duration(Number(pause) / 1e6)],
        ['Disk bound passed', Number(checkpoint.disk_excesses) > 0 ? `${count(checkpoint.disk_excesses)} times` : undefined],
      ],
    }),
  ];
}

function Stream({ stream, none }) {
  if (!stream) return h('span', { class: 'hint' }, none);
  const isGood = stream.status === 'follow' || stream.status === 'sync';
  return [
    h('span', { class: isGood ? '' : 'bad-text' }, stream.status),
    stream.lag !== undefined && `, late by ${duration(Math.max(0, stream.lag))}`,
    stream.behind !== undefined && `, ${of(stream.behind, 'row')} behind`,
    stream.message && h('div', null, h(Foreign, { text: stream.message })),
  ];
}

/** The instances of the replica set: what each sends and gets. */
export function Replication({ replication, uuid }) {
  const peers = Object.values(replication ?? {});
  if (peers.length === 0) return h('p', { class: 'hint' }, 'No replica follows this server, and it follows none.');
  const rows = peers.map((peer) =>
    h(
      'tr',
      { key: peer.id },
      h('th', { scope: 'row' }, `${peer.id}${peer.uuid === uuid ? ' (this server)' : ''}`, h('div', { class: 'hint minor' }, h('code', null, peer.uuid))),
      h('td', { class: 'number' }, count(peer.lsn)),
      h('td', null, h(Stream, { stream: peer.upstream, none: '–' })),
      h('td', null, h(Stream, { stream: peer.downstream, none: '–' })),
    ),
  );
  return h(Table, {
    caption: 'Replication',
    columns: [['id', 'Instance'], ['lsn', 'LSN', 'number'], ['upstream', 'This server gets'], ['downstream', 'This server sends']],
    rows,
  });
}

export function Expirations({ expiration }) {
  const all = Object.entries(expiration ?? {});
  if (all.length === 0) return h('p', { class: 'hint' }, 'None: ', h('code', null, 'lycosa expiration start'), ' begins one.');
  const rows = all.map(([name, task]) =>
    h(
      'tr',
      { key: name },
      h('th', { scope: 'row' }, h(Foreign, { text: name })),
      h('td', null, h('span', { class: task.state === 'failing' ? 'bad-text' : '' }, task.state), task.error && h('div', null, h(Foreign, { text: task.error }))),
      h('td', { class: 'number' }, count(task.scanned)),
      h('td', { class: 'number' }, count(task.expired)),
      h('td', { class: 'number' }, duration(Number(task.lag_us ?? 0) / 1e6)),
      h('td', { class: 'number minor' }, duration(Number(task.longest_hold_us ?? 0) / 1e6)),
    ),
  );
  return h(Table, {
    caption: 'Expiration tasks',
    columns: [['name', 'Task'], ['state', 'State'], ['scanned', 'Looked at', 'number'], ['expired', 'Expired', 'number'], ['lag', 'Late by', 'number'], ['hold', 'Longest slice', 'number minor']],
    rows,
  });
}
