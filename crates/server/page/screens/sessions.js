// Sessions: who is connected to the queue, and holds what since when; releases what a session holds, ends a connection.

import { h } from '../vendor/preact.mjs';
import { get, path, post } from '../api.js';
import { count, of } from '../format.js';
import { Act, Empty, Foreign, Moment, Table, to } from '../ui.js';

export const title = () => 'Sessions · Lycosa';

export const load = (route, signal) => get('v1/sessions', signal);

export function draw(route, { sessions, complete }) {
  const every = Array.isArray(sessions) ? sessions : [];
  const tube = route.query.get('tube');
  const filter = route.query.get('filter') ?? '';
  const wanted = filter.toLowerCase();
  const all = every.filter(
    ({ user = '', connections, taken = {} }) =>
      (tube === null || Number(taken[tube] ?? 0) > 0) &&
      [user, ...connections.map(({ address }) => address ?? ''), ...Object.keys(taken)].some((text) => text.toLowerCase().includes(wanted)),
  );
  const held = (session) => Object.values(session.taken ?? {}).reduce((sum, number) => sum + Number(number), 0);
  const sorted = [...all].sort((one, other) => held(other) - held(one));
  const rows = sorted.map((session, at) =>
    h(Row, { key: session.connections[0]?.id ?? `at ${at}`, session, number: held(session), after: route.refresh }),
  );
  const idle = all.filter((session) => session.connections.length > 0 && held(session) === 0).length;
  return [
    h('h1', null, 'Sessions'),
    h(
      'div',
      { class: 'tools' },
      h(
        'label',
        { class: 'inline' },
        h('span', null, 'Filter'),
        h('input', { type: 'search', placeholder: 'user, address or tube', value: filter, onInput: (event) => route.setQuery({ filter: event.target.value }) }),
      ),
      tube !== null &&
        h('button', { type: 'button', title: 'Remove', onClick: () => route.setQuery({ tube: '' }) }, 'Holds tasks of ', h('b', null, h(Foreign, { text: tube })), h('span', { class: 'hidden' }, 'remove'), h('span', { 'aria-hidden': 'true' }, ' ✕')),
      h('span', { class: 'tally' }, `${count(all.length)} of ${of(every.length, 'session')}, ${count(idle)} without a task`),
    ),
    !complete && h('p', { class: 'hint' }, 'More than 10 000 tasks are taken: the numbers are lower bounds.'),
    rows.length > 0
      ? h(Table, {
        caption: 'Sessions',
        columns: [
          ['user', 'User'],
          ['connections', 'Connections'],
          ['taken', 'Holds', 'number'],
          ['tubes', 'Tasks by tube'],
          ['since', 'Longest since'],
          ['ends', 'Ends', 'minor'],
          ['acts', 'Acts', 'steer'],
        ],
        rows,
      })
      : every.length > 0
        ? h(Empty, { kind: 'filtered' }, h('button', { type: 'button', onClick: () => route.setQuery({ filter: '', tube: '' }) }, 'Show all sessions'))
        : h(Empty, { kind: 'none' }, 'No client has used the queue, and no task is taken.'),
  ];
}

function Row({ session, number, after }) {
  const tubes = Object.entries(session.taken ?? {});
  const { connections, lease_ends: leaseEnds } = session;
  const isLeased = leaseEnds !== undefined;
  return h(
    'tr',
    null,
    h('th', { scope: 'row', class: 'user' }, session.user === undefined ? 'unknown' : h(Foreign, { text: session.user })),
    h(
      'td',
      null,
      connections.length === 0 && (isLeased ? 'leases' : 'none any more'),
      connections.map(({ id, address, since }) =>
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
    h('td', { class: 'minor' }, isLeased ? ['the first lease ', h(Moment, { at: leaseEnds })] : h(Moment, { at: session.expires })),
    h('td', { class: 'steer' }, connections.length > 0 && h(Steering, { connections, number, after })),
  );
}

/** Any connection of a session names it. Only those with an address are a client's: further ones are a program's, or a token's. */
function Steering({ connections, number, after }) {
  const [{ id }] = connections;
  const clients = connections.filter(({ address }) => address);
  return h(
    'div',
    { class: 'buttons' },
    number > 0 &&
      h(Act, {
        name: 'Release all',
        title: `Release all of connection ${id}`,
        says: `${of(number, 'task')} that the session has taken ${number === 1 ? 'is' : 'are'} ready again. The worker may have done the work already: then it is done twice. The session stays connected. There is no undo.`,
        withReason: true,
        run: async (reason) => {
          await post(path`v1/sessions/${id}/release`, { reason });
          return 'Released.';
        },
        after,
      }),
    clients.map(({ id: client, address }) =>
      h(Act, {
        key: client,
        name: clients.length > 1 ? `Disconnect ${client}` : 'Disconnect',
        title: `Disconnect ${client} at ${address}`,
        role: 'administrator',
        kind: 'grave',
        says: 'The connection is closed at once, and replies that the client has not read are lost. If it is the last one of its session, the tasks of the session are ready again, unless the setting queue.ttr keeps them. A client may connect again.',
        withReason: true,
        run: async (reason) => {
          await post(path`v1/sessions/${client}/disconnect`, { reason });
          return `Connection ${client} is closed.`;
        },
        after,
      }),
    ),
  );
}
