// Tubes: one row for each, filtered and sorted in the address.

import { Component, h } from '../vendor/preact.mjs';
import { may } from '../access.js';
import { Problem, path, post } from '../api.js';
import { Spark } from '../curve.js';
import { count, duration, of, rate } from '../format.js';
import { levels } from '../rates.js';
import { FLOW, STATES, loadStatus, quantile, rateOf, subjectOf } from '../tubes.js';
import { Act, Empty, Foreign, Table, to } from '../ui.js';

export const title = () => 'Tubes · Lycosa';

/** Rows that are drawn at first; a button draws the rest. */
const ROWS = 100;

const COLUMNS = [
  ['name', 'Tube'],
  ['type', 'Type', 'minor'],
  ...STATES.map((state) => [state, state, 'number']),
  ...FLOW.map((name) => [`${name}/s`, `${name}/s`, 'number']),
  ['shape', '', 'shape'],
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
        : h(List, { route, sort, tubes: shown }),
    shown.length < matching.length &&
      h('p', null, h('button', { type: 'button', onClick: () => route.setQuery({ all: 1 }) }, `Show all ${count(matching.length)}`)),
  ];
}

/** The rows, of which the token's tubes can be chosen. Only rows that are shown count as chosen. */
class List extends Component {
  constructor(props) {
    super(props);
    this.state = { chosen: new Set() };
  }

  choose(names, is) {
    const chosen = new Set(this.state.chosen);
    for (const name of names) chosen[is ? 'add' : 'delete'](name);
    this.setState({ chosen });
  }

  render({ route, sort, tubes }, { chosen }) {
    const free = tubes.filter(({ name }) => may('operator', name)).map(({ name }) => name);
    const taken = free.filter((name) => chosen.has(name));
    const whole = h('input', {
      type: 'checkbox',
      'aria-label': 'Choose all that are shown',
      checked: taken.length === free.length,
      indeterminate: taken.length > 0 && taken.length < free.length,
      onChange: (event) => this.choose(free, event.target.checked),
    });
    return [
      // Always there, so that a choice does not move the rows.
      free.length > 0 && h(Steering, { key: 'acts', names: taken, any: free[0], tubes, after: route.refresh }),
      h(Table, {
        key: 'rows',
        caption: 'Tubes',
        columns: [...(free.length > 0 ? [['choice', whole, 'choice']] : []), ...COLUMNS],
        sort,
        onSort: (next) => route.setQuery({ sort: next }),
        rows: tubes.map((tube) => {
          const { name } = tube;
          const onChoose = (event) => this.choose([name], event.target.checked);
          return h(Row, { key: name, tube, hasChoice: free.length > 0, onChoose: free.includes(name) && onChoose, isChosen: chosen.has(name) });
        }),
      }),
    ];
  }
}

/** Pauses or resumes the chosen tubes, those that are not yet so, after one question. */
function Steering({ names, any, tubes, after }) {
  const act = (name, verb, isPaused, says) => {
    const wanted = tubes.filter((tube) => names.includes(tube.name) && Boolean(tube.paused) !== isPaused).map((tube) => tube.name);
    return h(
      Act,
      {
        key: name,
        name,
        title: `${name} ${of(wanted.length, 'tube')}`,
        tube: any,
        disabled: wanted.length === 0,
        says,
        withReason: true,
        run: async (reason) => {
          let changed = 0;
          for (const tube of wanted) {
            try {
              if ((await post(path`v1/tubes/${tube}/${verb}`, { reason })).changed) changed += 1;
            } catch (problem) {
              throw new Problem(problem.status, { detail: `${tube}: ${problem.message} Before it, ${of(changed, 'tube')} changed.` });
            }
          }
          return `${isPaused ? 'Paused' : 'Resumed'} ${of(changed, 'tube')}.`;
        },
        after,
      },
      h('p', { class: 'names' }, wanted.map((tube, at) => [at > 0 && ', ', h(Foreign, { key: tube, text: tube })])),
    );
  };
  return h(
    'div',
    { class: 'tools' },
    h('span', { class: 'tally' }, `${count(names.length)} chosen:`),
    act('Pause', 'pause', true, 'These tubes hand out no task until they are resumed. Puts, acks and deadlines go on. The pause outlives a restart.'),
    act('Resume', 'resume', false, 'These tubes hand out tasks again, to waiting calls at once.'),
  );
}

/** The server may have tubes of which a token for some tubes does not hear. */
export function NoTube() {
  if (!may('viewer')) return h(Empty, { kind: 'none' }, 'This token is for tubes that do not exist.');
  return h(Empty, { kind: 'none' }, 'The server has no tube. ', h('code', null, 'lycosa tube create NAME'), ' makes one.');
}

function Row({ tube, hasChoice, onChoose, isChosen }) {
  const subject = subjectOf(tube.name);
  return h(
    'tr',
    null,
    hasChoice &&
      h(
        'td',
        { class: 'choice' },
        onChoose && h('input', { type: 'checkbox', checked: isChosen, 'aria-label': `Choose ${tube.name}`, onChange: onChoose }),
      ),
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
    h('td', { class: 'shape' }, h(Spark, { points: levels(subject, 'ready'), label: 'ready tasks since the page was opened' })),
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
