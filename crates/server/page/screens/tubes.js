// Tubes: one row for each, filtered and sorted in the address.

import { h } from '../vendor/preact.mjs';
import { may } from '../access.js';
import { Spark } from '../curve.js';
import { count, duration, rate } from '../format.js';
import { levels } from '../rates.js';
import { FLOW, STATES, loadStatus, quantile, rateOf, subjectOf } from '../tubes.js';
import { Empty, Foreign, Table, to } from '../ui.js';

export const title = () => 'Tubes · Lycosa';

/** Rows that are drawn at first; a button draws the rest. */
const ROWS = 100;

const COLUMNS = [
  ['name', 'Tube'],
  ['type', 'Type', 'minor'],
  ...STATES.map((state) => [state, state, 'number']),
  ...FLOW.map((name) => [`${name}/s`, `${name}/s`, 'number']),
  ['shape', '', 'minor'],
  ['oldest', 'Oldest ready', 'number minor'],
  ['wait50', 'Wait p50', 'number minor'],
  ['wait99', 'p99', 'number minor'],
  ['drain', 'Drained in', 'number minor'],
  ['waiting', 'Waiting', 'number minor'],
  ['capacity', 'Capacity', 'number minor'],
];

export const load = (route, signal) => loadStatus(signal);

/** What a column sorts by. */
const VALUES = {
  oldest: (tube) => tube.oldest_ready_age ?? -1,
  wait50: (tube) => quantile(tube.wait, 0.5) ?? -1,
  wait99: (tube) => quantile(tube.wait, 0.99) ?? -1,
  drain: (tube) => tube.drain ?? Infinity,
  waiting: (tube) => tube.waiting_takes,
  capacity: (tube) => Number(tube.capacity ?? 0),
};

function valueOf(tube, column) {
  if (STATES.includes(column)) return Number(tube.tasks[column]);
  if (column.endsWith('/s')) return rateOf(tube, column.slice(0, -2)) ?? -1;
  return VALUES[column]?.(tube) ?? tube[column] ?? '';
}

function sorted(tubes, sort) {
  const column = sort.replace(/^-/, '');
  const sign = sort.startsWith('-') ? -1 : 1;
  const compare = (one, other) => (one < other ? -sign : one > other ? sign : 0);
  return [...tubes].sort(
    (one, other) => compare(valueOf(one, column), valueOf(other, column)) || (one.name < other.name ? -1 : 1),
  );
}

export function draw(route, { tubes }) {
  const filter = route.query.get('filter') ?? '';
  const sort = route.query.get('sort') ?? 'name';
  const wanted = filter.toLowerCase();
  const matching = tubes.filter(({ name, type }) => name.toLowerCase().includes(wanted) || type === wanted);
  const isAll = route.query.has('all');
  const shown = sorted(matching, sort).slice(0, isAll ? undefined : ROWS);
  return [
    h('h1', null, 'Tubes'),
    h(
      'div',
      { class: 'tools' },
      h(
        'label',
        { class: 'inline' },
        h('span', null, 'Filter'),
        h('input', { type: 'search', value: filter, onInput: (event) => route.setQuery({ filter: event.target.value }) }),
      ),
      h('span', { class: 'tally' }, `${count(matching.length)} of ${count(tubes.length)}`),
    ),
    tubes.length === 0
      ? h(NoTube, {})
      : matching.length === 0
        ? h(Empty, { kind: 'filtered' }, h('button', { type: 'button', onClick: () => route.setQuery({ filter: '' }) }, 'Show all tubes'))
        : h(Table, {
          caption: 'Tubes',
          columns: COLUMNS,
          sort,
          onSort: (next) => route.setQuery({ sort: next }),
          rows: shown.map((tube) => h(Row, { key: tube.name, tube })),
        }),
    shown.length < matching.length &&
      h('p', null, h('button', { type: 'button', onClick: () => route.setQuery({ all: 1 }) }, `Show all ${count(matching.length)}`)),
  ];
}

/** The server may have tubes of which a token for some tubes does not hear. */
export function NoTube() {
  if (!may('viewer')) return h(Empty, { kind: 'none' }, 'This token is for tubes that do not exist.');
  return h(Empty, { kind: 'none' }, 'The server has no tube. ', h('code', null, 'lycosa tube create NAME'), ' makes one.');
}

function Row({ tube }) {
  const subject = subjectOf(tube.name);
  return h(
    'tr',
    null,
    h(
      'th',
      { scope: 'row' },
      h('a', { href: to`#/tubes/${tube.name}` }, h(Foreign, { text: tube.name })),
      tube.paused && h('span', { class: 'badge' }, 'paused'),
    ),
    h('td', { class: 'minor' }, tube.type),
    STATES.map((state) =>
      h(
        'td',
        { key: state, class: `number ${Number(tube.tasks[state]) > 0 ? state : 'zero'}` },
        h('a', { href: to`#/tubes/${tube.name}/tasks?state=${state}` }, count(tube.tasks[state])),
      ),
    ),
    FLOW.map((name) => h('td', { key: name, class: 'number' }, rate(rateOf(tube, name)))),
    h('td', { class: 'minor' }, h(Spark, { points: levels(subject, 'ready'), label: 'ready tasks since the page was opened' })),
    [
      duration(tube.oldest_ready_age),
      duration(quantile(tube.wait, 0.5)),
      duration(quantile(tube.wait, 0.99)),
      tube.drain === 0 ? '–' : duration(tube.drain),
      count(tube.waiting_takes),
      count(tube.capacity),
    ].map((text, at) => h('td', { key: at, class: 'number minor' }, text)),
  );
}
