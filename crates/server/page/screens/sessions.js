// Sessions: who is connected to the queue, and holds what since when.

import { h } from '../vendor/preact.mjs';
import { get } from '../api.js';
import { count, of } from '../format.js';
import { Empty, Foreign, Moment, Table, to } from '../ui.js';

export const title = () => 'Sessions · Lycosa';

export const load = (route, signal) => get('v1/sessions', signal);

export function draw(route, { sessions, complete }) {
  const all = Array.isArray(sessions) ? sessions : [];
  const held = (session) => Object.values(session.taken ?? {}).reduce((sum, number) => sum + Number(number), 0);
  const sorted = [...all].sort((one, other) => held(other) - held(one));
  const rows = sorted.map((session, at) => h(Row, { key: session.connections[0]?.id ?? `at ${at}`, session, number: held(session) }));
  return [
    h('h1', null, 'Sessions'),
    h('p', { class: 'tally' }, of(all.length, 'session'), complete ? '' : '. More than 10 000 tasks are taken: the numbers are lower bounds'),
    rows.length > 0
      ? h(Table, {
        caption: 'Sessions',
        columns: [['user', 'User'], ['connections', 'Connections'], ['taken', 'Holds', 'number'], ['tubes', 'Tasks by tube'], ['since', 'Longest since'], ['expires', 'Ends', 'minor']],
        rows,
      })
      : h(Empty, { kind: 'none' }, 'No client has used the queue, and no task is taken.'),
  ];
}

function Row({ session, number }) {
  const tubes = Object.entries(session.taken ?? {});
  return h(
    'tr',
    null,
    h('th', { scope: 'row' }, session.user === undefined ? 'unknown' : h(Foreign, { text: session.user })),
    h(
      'td',
      null,
      session.connections.length === 0 && 'none any more',
      session.connections.map(({ id, address, since }) =>
        h('div', { key: id }, `${id} `, address && h(Foreign, { text: address }), since && [' since ', h(Moment, { at: since })]),
      ),
    ),
    h('td', { class: 'number' }, count(number)),
    h(
      'td',
      null,
      tubes.length === 0 ? '–' : tubes.map(([tube, taken]) => h('div', { key: tube }, h('a', { href: to`#/tubes/${tube}/tasks?state=taken` }, h(Foreign, { text: tube })), ` ${count(taken)}`)),
    ),
    h('td', null, h(Moment, { at: session.taken_at })),
    h('td', { class: 'minor' }, h(Moment, { at: session.expires })),
  );
}
