// A tube: its tasks and flow, why it hands out no task, and what can be done with it.

import { h } from '../vendor/preact.mjs';
import { get, path, post } from '../api.js';
import { may } from '../access.js';
import { Bars } from '../curve.js';
import { bytes, count, duration, rate } from '../format.js';
import { issuesOf } from '../issues.js';
import { FLOW, STATES, buckets, loadTube, quantile, rateOf, subjectOf, totalOf } from '../tubes.js';
import { Act, Facts, Figure, Figures, Foreign, OpenTask, Table, to } from '../ui.js';
import { Explanation } from '../explanation.js';
import { PutForm } from '../put.js';
import { IssueList } from './issues.js';
import { Curves, Spans, spanOf } from './overview.js';

/** Reasons that concern the whole tube, and stand under "Why no task is handed out". */
const OF_TUBE = ['paused', 'no_consumer'];

export const title = ({ names: [name] }) => `${name} · Lycosa`;

export async function load({ names: [name] }, signal) {
  const [tube, explanation] = await Promise.all([
    loadTube(name, signal),
    get(path`v1/tubes/${name}/explain`, signal),
  ]);
  // Names that are no text cannot be asked for.
  const asked = (tube.sub_queues ?? []).filter(({ name: key, tasks }) => typeof key === 'string' && Number(tasks.ready) > 0);
  const blocked = await Promise.all(
    asked.map(async ({ name: key }) => {
      const { reasons } = await get(path`v1/tubes/${name}/explain?utube=${key}`, signal);
      return [key, { reasons: reasons.filter(({ reason }) => !OF_TUBE.includes(reason)) }];
    }),
  );
  return { tube, explanation, blocked: new Map(blocked) };
}

export function draw(route, { tube, explanation, blocked }) {
  const { name, tasks } = tube;
  const { span, grain } = spanOf(route, tube.history !== undefined);
  const issues = issuesOf({ tubes: [tube] });
  return [
    h(
      'div',
      { class: 'heading' },
      h('h1', null, h('a', { href: '#/tubes' }, 'Tubes'), ' / ', h(Foreign, { text: name }), tube.paused && h('span', { class: 'badge' }, 'paused')),
      h(Steering, { tube, after: route.refresh }),
    ),
    issues.length > 0 && h(IssueList, { issues, after: route.refresh, isShort: true }),
    h(
      Figures,
      null,
      STATES.map((state) =>
        h(Figure, { key: state, name: state, kind: state, value: count(tasks[state]), href: to`#/tubes/${name}/tasks?state=${state}` }),
      ),
      FLOW.map((flow) => h(Figure, { key: flow, name: flow, kind: flow, value: rate(rateOf(tube, flow)), note: 'mean of 1 min' })),
      h(Figure, { name: 'waiting calls', value: count(tube.waiting_takes) }),
    ),
    h(
      'div',
      { class: 'links' },
      h('a', { href: to`#/tubes/${name}/tasks` }, 'All tasks'),
      h('a', { href: to`#/tubes/${name}/jobs` }, 'Jobs'),
      may('viewer') && h('a', { href: to`#/sessions?tube=${name}` }, 'Sessions that hold tasks'),
      h(OpenTask, { tube: name }),
    ),
    tube.history && h(Spans, { route, current: span }),
    h(Curves, { history: tube.history, tasks, subject: subjectOf(name), span, grain }),
    h(
      'div',
      { class: 'columns' },
      h(
        'div',
        { class: 'column' },
        h(
          'section',
          { class: 'panel' },
          h('h2', null, 'Why no task is handed out'),
          h(Explanation, { explanation, tube: name, idle: 'The next take gets a task at once.' }),
          h('h2', null, 'About'),
          h(Facts, { facts: facts(tube) }),
        ),
        h(Durations, { tube }),
      ),
      h(
        'div',
        { class: 'column' },
        h(PutForm, { key: route.query.get('copy'), tube, copied: route.query.get('copy'), after: route.refresh }),
        tube.sub_queues && h(SubQueues, { tube, blocked }),
        h(Calls, { calls: tube.operations }),
      ),
    ),
  ];
}

const facts = (tube) => [
  ['Type', tube.type],
  ['Capacity', tube.capacity === undefined ? 'no bound' : count(tube.capacity)],
  ...optionsOf(tube.options ?? {}),
  ['Bytes of tasks', bytes(tube.bytes)],
  ['Oldest ready', duration(tube.oldest_ready_age)],
  ['Longest taken', duration(tube.oldest_taken_age)],
  ['Drained in', tube.drain === undefined ? 'never at this rate' : duration(tube.drain)],
  ['Puts that wait', count(tube.waiting_puts)],
  ['Sub-queues', tube.ready_keys === undefined ? undefined : `${count(tube.ready_keys)} ready, ${count(tube.busy_keys)} busy`],
  ['Finished', count(tube.done)],
  ['Redelivered', Object.entries(tube.redeliveries).map(([why, number]) => `${why} ${count(number)}`).join(', ')],
];

/** Options of `create_tube`: durability, and the defaults of puts. */
const optionsOf = ({ temporary, storage_mode: storage, ttl, ttr, pri }) => [
  ['Tasks outlive a restart', temporary === undefined ? undefined : temporary ? 'no: the tube is temporary' : 'yes'],
  ['Storage mode', storage],
  ['ttl of a put', ttl === undefined ? undefined : duration(ttl)],
  ['ttr of a put', ttr === undefined ? undefined : duration(ttr)],
  ['Priority of a put', pri === undefined ? undefined : String(pri)],
];

/** How long tasks waited and were worked on. */
function Durations({ tube }) {
  const shown = (histogram) => buckets(histogram).map(([bound, number]) => [`≤ ${duration(bound)}`, number]);
  const part = (title, histogram, none) => {
    const bars = shown(histogram);
    if (bars.length === 0) return [h('h2', null, title), h('p', { class: 'hint' }, none)];
    return [
      h('h2', null, `${title}: p50 ${duration(quantile(histogram, 0.5))}, p99 ${duration(quantile(histogram, 0.99))}`),
      h(Bars, { label: `${title}, by duration`, bars, show: count }),
    ];
  };
  if (!tube.wait) return h('section', { class: 'panel' }, h('h2', null, 'Durations'), h('p', { class: 'hint' }, 'The server measures the first 8 192 tubes; this is not one of them.'));
  return h('section', { class: 'panel' }, part('Wait', tube.wait, 'No task was taken.'), part('Work', tube.work, 'No task was finished.'));
}

/** The sub-queues into which the most is put, and why those with ready tasks hand out none. */
function SubQueues({ tube, blocked }) {
  const rows = tube.sub_queues.flatMap(({ name, tasks }) => [
    h(
      'tr',
      { key: name },
      h('th', { scope: 'row' }, h('a', { href: to`#/tubes/${tube.name}/tasks?utube=${name}` }, h(Foreign, { text: name }))),
      STATES.map((state) => h('td', { key: state, class: 'number' }, count(tasks[state]))),
    ),
    blocked.get(name)?.reasons.length > 0 &&
      h(
        'tr',
        { key: `${name} why`, class: 'why' },
        h('td', { colSpan: STATES.length + 1 }, h(Explanation, { explanation: blocked.get(name), tube: tube.name, idle: '' })),
      ),
  ]);
  return h(
    'section',
    { class: 'panel' },
    h('h2', null, 'Busiest sub-queues'),
    h(Table, { caption: 'Busiest sub-queues', columns: [['name', 'Sub-queue'], ...STATES.map((state) => [state, state, 'number'])], rows }),
  );
}

function Calls({ calls }) {
  const rows = Object.entries(calls)
    .filter(([, number]) => Number(number) > 0)
    .map(([name, number]) => h('tr', { key: name }, h('th', { scope: 'row' }, name), h('td', { class: 'number' }, count(number))));
  return h(
    'section',
    { class: 'panel' },
    h('h2', null, 'Operations since the start'),
    rows.length
      ? h(Table, { caption: 'Operations', columns: [['call', 'Operation'], ['number', 'Number', 'number']], rows })
      : h('p', { class: 'empty' }, 'None.'),
  );
}

function Steering({ tube, after }) {
  const { name, paused } = tube;
  return h(
    'div',
    { class: 'buttons' },
    paused
      ? h(Act, {
        name: 'Resume',
        title: `Resume ${name}`,
        tube: name,
        kind: 'main',
        says: 'The tube hands out tasks again, to waiting calls at once.',
        withReason: true,
        run: async (reason) => ((await post(path`v1/tubes/${name}/resume`, { reason })).changed ? 'Resumed.' : 'It was not paused.'),
        after,
      })
      : h(Act, {
        name: 'Pause',
        title: `Pause ${name}`,
        tube: name,
        says: 'The tube hands out no task until it is resumed. Puts, acks and deadlines go on. The pause outlives a restart.',
        withReason: true,
        run: async (reason) => ((await post(path`v1/tubes/${name}/pause`, { reason })).changed ? 'Paused.' : 'It was paused already.'),
        after,
      }),
    h(Act, {
      name: 'Truncate',
      title: `Truncate ${name}`,
      tube: name,
      role: 'administrator',
      kind: 'grave',
      typed: name,
      says: `Deletes all ${count(totalOf(tube))} tasks of the tube, also those that workers hold. There is no undo. Ids begin at 0 again.`,
      run: async () => {
        await post(path`v1/tubes/${name}/truncate`);
        return `Truncated ${name}.`;
      },
      after,
    }),
  );
}
