// Tasks of a tube: a filter that stands in the address, pages, a choice of rows, and acts on the choice or on all that match.

import { Component, h } from '../vendor/preact.mjs';
import { get, parse, path, post, stringify } from '../api.js';
import { Bulk } from '../bulk.js';
import { hidesPayloads, may } from '../access.js';
import { count } from '../format.js';
import { STATES, totalOf } from '../tubes.js';
import { Empty, Field, Foreign, Moment, State, Table, to } from '../ui.js';

export const title = ({ names: [tube] }) => `Tasks of ${tube} · Lycosa`;

const LIMIT = 50;
/** Characters of a payload in a row. */
const SHOWN = 120;

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
    else if (NUMBERS.includes(name)) filter[name] = Number(text);
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
    return [
      h(
        'div',
        { class: 'heading' },
        h('h1', null, h('a', { href: to`#/tubes/${tube}` }, h(Foreign, { text: tube })), ' / Tasks'),
        h('a', { href: to`#/tubes/${tube}/jobs` }, 'Jobs'),
      ),
      h(States, { route, status }),
      h(Filter, { route }),
      h(
        'div',
        { class: 'tools' },
        h('span', { class: 'tally' }, `${count(scanned)} of ${count(total)} looked at, ${count(tasks.length)} on this page`),
      ),
      choice && tasks.length > 0 && h(
        'div',
        { class: 'acts' },
        shownChosen.length > 0 &&
          h(Bulk, {
            key: 'chosen',
            tube,
            label: `${count(shownChosen.length)} chosen:`,
            scope: { ids: shownChosen },
            states: shownChosen.map(({ state }) => state),
            sample: shownChosen,
            after: route.refresh,
          }),
        h(Bulk, {
          key: 'all',
          tube,
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
            ...(choice ? [['choice', '', 'choice']] : []),
            ['id', 'Id'],
            ['state', 'State'],
            ['attempts', 'Attempts', 'number minor'],
            ['pri', 'Priority', 'number minor'],
            ['utube', 'Sub-queue', 'minor'],
            ['created', 'Put', 'minor'],
            ['due', 'Changes', 'minor'],
            ['payload', 'Payload'],
          ],
          rows: tasks.map((task) =>
            h(Row, { key: task.id, tube, task, choice, isChosen: chosen.has(task.id), onChoose: (is) => this.choose([task.id], is) }),
          ),
        })
        : h(Nothing, { cursor, isFiltered, route }),
      h(
        'p',
        { class: 'buttons' },
        route.query.has('cursor') && h('button', { type: 'button', onClick: () => route.setQuery({ cursor: '' }) }, 'First page'),
        cursor && h('button', { type: 'button', onClick: () => route.setQuery({ cursor }, { isStep: true }) }, tasks.length ? 'Next page' : 'Look further'),
        choice && tasks.length > 0 &&
          h(
            'button',
            { type: 'button', onClick: () => this.choose(tasks.map(({ id }) => id), shownChosen.length < tasks.length) },
            shownChosen.length < tasks.length ? 'Choose all of this page' : 'Choose none',
          ),
      ),
    ];
  }
}

function Nothing({ cursor, isFiltered, route }) {
  if (cursor) return h(Empty, { kind: 'filtered' }, 'So far: there is more to look at.');
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

function Row({ tube, task, choice, isChosen, onChoose }) {
  return h(
    'tr',
    null,
    choice &&
      h(
        'td',
        { class: 'choice' },
        h('input', { type: 'checkbox', checked: isChosen, 'aria-label': `Choose task ${task.id}`, onChange: (event) => onChoose(event.target.checked) }),
      ),
    h('th', { scope: 'row' }, h('a', { href: to`#/tubes/${tube}/tasks/${task.id}` }, task.id)),
    h('td', null, h(State, { state: task.state })),
    h('td', { class: 'number minor' }, count(task.attempts)),
    h('td', { class: 'number minor' }, task.pri === undefined ? '–' : String(task.pri)),
    h('td', { class: 'minor' }, task.utube === undefined ? '–' : h(Foreign, { text: task.utube })),
    h('td', { class: 'minor' }, h(Moment, { at: task.created })),
    h('td', { class: 'minor' }, h(Moment, { at: task.due })),
    h('td', { class: 'payload' }, h(Foreign, { text: brief(task) }), task.last_error && !hidesPayloads() && h('div', { class: 'error' }, h(Foreign, { text: task.last_error.slice(0, SHOWN) }))),
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

/** The filter is read when it is submitted, so that no half of a number is looked for. */
function Filter({ route }) {
  const { query } = route;
  const used = FIELDS.filter((name) => query.get(name)).length;
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
    { class: 'panel filter', open: used > 0 || undefined },
    h('summary', null, 'Filter', used > 0 ? ` (${used})` : ' by id, age, attempts, error, payload'),
    h('form', { onSubmit: submit }, h('div', { class: 'fields' }, FIELDS.map(input)), h('p', { class: 'buttons' }, h('button', { type: 'submit' }, 'Find'))),
  );
}
