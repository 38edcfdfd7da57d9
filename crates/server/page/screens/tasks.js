// Tasks of a tube: a filter that stands in the address, pages, a choice of rows, and acts on the choice or on all that match.

import { Component, h } from '../vendor/preact.mjs';
import { get, numberOf, parse, path, post, stringify } from '../api.js';
import { Bulk } from '../bulk.js';
import { hidesPayloads, may } from '../access.js';
import { count, firstLine, of } from '../format.js';
import { Progress, begin, finished, isOver } from '../jobs.js';
import { STATES, isTimed, totalOf } from '../tubes.js';
import { Empty, Field, Foreign, Moment, OpenTask, Refusal, State, Table, to } from '../ui.js';

export const title = ({ names: [tube] }) => `Tasks of ${tube} · Lycosa`;

const LIMIT = 50;
/** Characters of a payload in a row. */
const SHOWN = 120;
/** Kinds of errors that have a button. */
const ERRORS = 6;

const NUMBERS = ['id_from', 'id_to', 'pri_from', 'pri_to', 'older_than', 'younger_than', 'attempts_from', 'attempts_to'];
const TEXTS = ['utube', 'error', 'field', 'equals', 'contains'];
const NAMES = {
  state: 'State',
  id_from: 'Id from',
  id_to: 'Id to',
  utube: 'Sub-queue',
  pri_from: 'Priority from',
  pri_to: 'Priority to',
  older_than: 'Older than (s)',
  younger_than: 'Younger than (s)',
  attempts_from: 'Attempts from',
  attempts_to: 'Attempts to',
  error: 'Error contains',
  field: 'Payload field',
  equals: '… equals',
  contains: '… contains',
};

/** The name of a field in the form. A field named as a method of the form, such as `contains`, would hide the method. */
const fieldOf = (name) => `filter-${name}`;

/** The filter of the address, as `find` takes it. */
function filterOf(query) {
  const filter = {};
  for (const name of Object.keys(NAMES)) {
    const text = query.get(name);
    if (text === null || text === '') continue;
    if (name === 'id_from' || name === 'id_to') filter[name] = text;
    else if (NUMBERS.includes(name)) filter[name] = numberOf(text);
    else if (name === 'equals') filter[name] = anyValue(text);
    else filter[name] = text;
  }
  return filter;
}

/** `5`, `true` and `"5"` as JSON says; other text is a text. */
function anyValue(text) {
  try {
    return parse(text);
  } catch {
    return text;
  }
}

export async function load({ names: [tube], query }, signal) {
  const asked = { filter: filterOf(query), limit: LIMIT, cursor: query.get('cursor') ?? undefined };
  const [page, status] = await Promise.all([
    post(path`v1/tubes/${tube}/find`, asked, signal),
    get(path`v1/tubes/${tube}/status`, signal),
  ]);
  return { page, status };
}

export function draw(route, data) {
  return h(Tasks, { route, page: data.page, status: data.status });
}

class Tasks extends Component {
  constructor(props) {
    super(props);
    this.state = { chosen: new Set() };
    /** The row of the last choice, from which one with Shift reaches. */
    this.last = 0;
  }

  /** Chooses a row; with Shift also those between it and the last one. */
  chooseRow(tasks, at, { target, shiftKey }) {
    const [from, to] = shiftKey ? [Math.min(this.last, at), Math.max(this.last, at)] : [at, at];
    this.last = at;
    this.choose(tasks.slice(from, to + 1).map(({ id }) => id), target.checked);
  }

  choose(ids, isChosen) {
    const chosen = new Set(this.state.chosen);
    for (const id of ids) {
      if (isChosen) chosen.add(id);
      else chosen.delete(id);
    }
    this.setState({ chosen });
  }

  render({ route, page, status }, { chosen }) {
    const [tube] = route.names;
    const { tasks, cursor, scanned, total } = page;
    const filter = filterOf(route.query);
    const isFiltered = Object.keys(filter).length > 0;
    const shownChosen = tasks.filter(({ id }) => chosen.has(id));
    const choice = may('operator', tube);
    const hasSubQueues = tasks.some(({ utube }) => utube !== undefined);
    return [
      h(
        'div',
        { class: 'heading' },
        h('h1', null, h('a', { href: to`#/tubes/${tube}` }, h(Foreign, { text: tube })), ' / Tasks'),
        h('div', { class: 'links' }, h(OpenTask, { tube }), h('a', { href: to`#/tubes/${tube}/jobs` }, 'Jobs')),
      ),
      h(States, { route, status }),
      h(Filter, { route }),
      h(Used, { route }),
      h(Errors, { route, tasks }),
      h(
        'div',
        { class: 'tools' },
        h('span', { class: 'tally' }, `${count(scanned)} of ${count(total)} looked at, ${count(tasks.length)} on this page`),
        // The number of tasks in a state stands on the button of the state.
        Object.keys(filter).some((name) => name !== 'state') && h(Count, { key: stringify(filter), tube, filter }),
      ),
      choice && tasks.length > 0 && h(
        'div',
        { class: 'acts' },
        shownChosen.length > 0 &&
          h(Bulk, {
            key: 'chosen',
            tube,
            isTimed: isTimed(status.type),
            label: `${count(shownChosen.length)} chosen:`,
            scope: { ids: shownChosen },
            states: shownChosen.map(({ state }) => state),
            sample: shownChosen,
            after: route.refresh,
          }),
        h(Bulk, {
          key: 'all',
          tube,
          isTimed: isTimed(status.type),
          label: isFiltered ? 'All that match:' : 'All tasks of the tube:',
          scope: { filter: isFiltered ? filter : { all: true } },
          states: filter.state ? [filter.state] : undefined,
          sample: tasks,
          after: route.refresh,
        }),
      ),
      tasks.length > 0
        ? h(Table, {
          caption: 'Tasks',
          columns: [
            ...(choice ? [['choice', h(WholePage, { chosen: shownChosen.length, shown: tasks.length, onChoose: (is) => this.choose(tasks.map(({ id }) => id), is) }), 'choice']] : []),
            ['id', 'Id', 'id'],
            ['state', 'State'],
            ['attempts', 'Attempts', 'number minor'],
            ['pri', 'Priority', 'number minor'],
            ...(hasSubQueues ? [['utube', 'Sub-queue', 'minor']] : []),
            ['created', 'Put', 'minor'],
            ['due', 'Changes', 'minor'],
            ['payload', 'Payload'],
          ],
          rows: tasks.map((task, at) =>
            h(Row, { key: task.id, tube, task, hasSubQueues, choice, isChosen: chosen.has(task.id), onChoose: (event) => this.chooseRow(tasks, at, event) }),
          ),
        })
        : h(Nothing, { cursor, isFiltered, route }),
      h(
        'p',
        { class: 'buttons' },
        route.query.has('cursor') && h('button', { type: 'button', onClick: () => route.setQuery({ cursor: '' }) }, 'First page'),
        cursor && h('button', { type: 'button', onClick: () => route.setQuery({ cursor }, { isStep: true }) }, tasks.length ? 'Next page' : 'Look further'),
      ),
    ];
  }
}

/** Counts all tasks that match, as a job that changes nothing: a viewer may do so. */
class Count extends Component {
  constructor(props) {
    super(props);
    this.state = { job: null, problem: null };
  }

  async run() {
    const { tube, filter } = this.props;
    try {
      this.setState({ problem: null });
      await finished(tube, await begin(tube, { operation: 'count', filter }), (job) => this.setState({ job }));
    } catch (problem) {
      this.setState({ job: null, problem });
    }
  }

  render(_, { job, problem }) {
    if (job && !isOver(job)) return h(Progress, { job });
    return [
      h('button', { type: 'button', onClick: () => this.run() }, 'Count all that match'),
      job && h('strong', { role: 'status' }, `${of(job.matched, 'task')} matched.`),
      problem && h(Refusal, { problem }),
    ];
  }
}

/** Chooses all tasks of the page, or none. */
function WholePage({ chosen, shown, onChoose }) {
  return h('input', {
    type: 'checkbox',
    'aria-label': 'Choose all of this page',
    checked: chosen === shown,
    indeterminate: chosen > 0 && chosen < shown,
    onChange: (event) => onChoose(event.target.checked),
  });
}

/** The kinds of errors of the page, the most frequent first: each is a filter. */
function Errors({ route, tasks }) {
  if (hidesPayloads()) return null;
  const kinds = new Map();
  for (const { last_error: error } of tasks) if (error) kinds.set(firstLine(error), (kinds.get(firstLine(error)) ?? 0) + 1);
  if (kinds.size === 0 || (kinds.size === 1 && route.query.has('error'))) return null;
  const frequent = [...kinds].sort(([, one], [, other]) => other - one).slice(0, ERRORS);
  return h(
    'div',
    { class: 'spans errors', role: 'group', 'aria-label': 'Errors of this page' },
    h('span', { class: 'tally' }, 'Errors of this page:'),
    frequent.map(([error, number]) =>
      h(
        'button',
        { type: 'button', key: error, onClick: () => route.setQuery({ error, cursor: '' }, { isStep: true }) },
        h(Foreign, { text: error }),
        ' ',
        h('b', null, count(number)),
      ),
    ),
  );
}

function Nothing({ cursor, isFiltered, route }) {
  if (cursor) return h(Empty, { kind: 'filtered' }, 'The tasks of this page do not; there are more to look at.');
  if (!isFiltered) return h(Empty, { kind: 'none' }, 'The tube has no task.');
  const names = Object.fromEntries(Object.keys(NAMES).map((name) => [name, '']));
  return h(Empty, { kind: 'filtered' }, h('button', { type: 'button', onClick: () => route.setQuery({ ...names, cursor: '' }) }, 'Show all tasks'));
}

function brief(task) {
  if (hidesPayloads()) return '(hidden)';
  if (!('payload' in task)) return task.payload_base64 !== undefined ? '(bytes)' : '(MessagePack)';
  const text = typeof task.payload === 'string' ? task.payload : stringify(task.payload);
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
}

function Row({ tube, task, hasSubQueues, choice, isChosen, onChoose }) {
  return h(
    'tr',
    null,
    choice &&
      h(
        'td',
        { class: 'choice' },
        h('input', { type: 'checkbox', checked: isChosen, 'aria-label': `Choose task ${task.id}`, onClick: onChoose }),
      ),
    h('th', { scope: 'row', class: 'id' }, h('a', { href: to`#/tubes/${tube}/tasks/${task.id}` }, task.id)),
    h('td', null, h(State, { state: task.state })),
    h('td', { class: 'number minor' }, count(task.attempts)),
    h('td', { class: 'number minor' }, task.pri === undefined ? '–' : String(task.pri)),
    hasSubQueues && h('td', { class: 'minor' }, task.utube === undefined ? '–' : h(Foreign, { text: task.utube })),
    h('td', { class: 'minor' }, h(Moment, { at: task.created })),
    h('td', { class: 'minor' }, h(Moment, { at: task.due })),
    h('td', { class: 'payload' }, h(Foreign, { text: brief(task) }), task.last_error && !hidesPayloads() && h('div', { class: 'error' }, h(Foreign, { text: firstLine(task.last_error) }))),
  );
}

/** A button for each state, with the number of all its tasks. */
function States({ route, status }) {
  const present = route.query.get('state') ?? '';
  return h(
    'div',
    { class: 'spans states', role: 'group', 'aria-label': 'State' },
    ['', ...STATES].map((state) =>
      h(
        'button',
        { type: 'button', key: state, class: state, 'aria-pressed': String(state === present), onClick: () => route.setQuery({ state, cursor: '' }, { isStep: true }) },
        `${state || 'all'} `,
        h('b', null, count(state ? status.tasks[state] : totalOf(status))),
      ),
    ),
  );
}

/** Members of the filter but the state, which has buttons. */
const FIELDS = [...NUMBERS, ...TEXTS];

/** The members of the filter that are in use: a button removes each. */
function Used({ route }) {
  const used = FIELDS.filter((name) => route.query.get(name));
  if (used.length === 0) return null;
  return h(
    'div',
    { class: 'spans', role: 'group', 'aria-label': 'Filter in use' },
    h('span', { class: 'tally' }, 'Filter in use:'),
    used.map((name) =>
      h(
        'button',
        { type: 'button', key: name, title: 'Remove', onClick: () => route.setQuery({ [name]: '', cursor: '' }, { isStep: true }) },
        `${NAMES[name]} `,
        h('b', null, h(Foreign, { text: route.query.get(name) })),
        h('span', { class: 'hidden' }, 'remove'),
        h('span', { 'aria-hidden': 'true' }, ' ✕'),
      ),
    ),
  );
}

/** The filter is read when it is submitted, so that no half of a number is looked for. */
function Filter({ route }) {
  const { query } = route;
  const submit = (event) => {
    event.preventDefault();
    const fields = event.target.elements;
    route.setQuery({ cursor: '', ...Object.fromEntries(FIELDS.map((name) => [name, fields[fieldOf(name)].value])) }, { isStep: true });
  };
  const input = (name) => {
    const more = name === 'id_from' || name === 'id_to' ? { inputMode: 'numeric', pattern: '[0-9]*' } : NUMBERS.includes(name) ? { type: 'number', min: 0, step: 'any' } : {};
    return h(Field, { key: name, name: NAMES[name] }, h('input', { name: fieldOf(name), defaultValue: query.get(name) ?? '', ...more }));
  };
  return h(
    'details',
    { class: 'panel filter' },
    h('summary', null, 'Filter by id, age, attempts, error, payload'),
    h('form', { onSubmit: submit }, h('div', { class: 'fields' }, FIELDS.map(input)), h('p', { class: 'buttons' }, h('button', { type: 'submit' }, 'Find'))),
  );
}
