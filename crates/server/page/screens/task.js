// A task: where it is in its life, why it is not worked on, its payload, and what can be done with it.

import { Component, h } from '../vendor/preact.mjs';
import { Problem, get, path } from '../api.js';
import { hidesPayloads, may } from '../access.js';
import { count, duration, firstLine, visibleLine } from '../format.js';
import { Act, Facts, Field, Foreign, Moment, Refusal, State, to } from '../ui.js';
import { Explanation } from '../explanation.js';
import { begin, finished, outcome, scheduleFields, scheduleOf } from '../jobs.js';
import { Payload } from '../payload.js';

export const title = ({ names: [tube, id] }) => `${tube} ${id} · Lycosa`;

export async function load({ names: [tube, id] }, signal) {
  try {
    const [task, explanation] = await Promise.all([
      get(path`v1/tubes/${tube}/tasks/${id}`, signal),
      get(path`v1/tubes/${tube}/explain?id=${id}`, signal),
    ]);
    return { task, explanation };
  } catch (problem) {
    if (problem.kind !== 'no-such-task') throw problem;
    return { problem };
  }
}

export function draw(route, { task, explanation, problem }) {
  const [tube, id] = route.names;
  return [
    h(
      'div',
      { class: 'heading' },
      h(
        'h1',
        null,
        h('a', { href: to`#/tubes/${tube}` }, h(Foreign, { text: tube })),
        ' / ',
        h('a', { href: to`#/tubes/${tube}/tasks` }, 'Tasks'),
        ` / ${id} `,
        task && h(State, { state: task.state }),
      ),
      task && h(Steering, { tube, id, task, after: route.refresh }),
    ),
    problem && [h(Refusal, { problem }), h('p', null, 'It is finished or deleted, or it never was. ', h('a', { href: to`#/tubes/${tube}/tasks` }, 'Tasks'))],
    task && h(Life, { task }),
    task &&
      h(
        'div',
        { class: 'columns' },
        h(
          'section',
          { class: 'panel' },
          h('h2', null, 'Why it does not run'),
          h(Explanation, { explanation, tube, idle: 'It runs next: a take gets it at once.' }),
          task.last_error && [
            h('h2', null, 'Last error'),
            h(
              Hideable,
              { what: 'error' },
              h('pre', { tabIndex: 0, 'aria-label': 'Last error' }, h(Foreign, { text: task.last_error, lines: true })),
              h('p', null, h('a', { href: to`#/tubes/${tube}/tasks?state=${task.state}&error=${firstLine(task.last_error)}` }, `All ${task.state} tasks with this error`)),
            ),
          ],
          h('h2', null, 'About'),
          h(Facts, { facts: facts(task) }),
          task.headers && [h('h2', null, 'Headers'), h(Facts, { facts: Object.entries(task.headers).map(([name, text]) => [visibleLine(name), h(Foreign, { text })]) })],
        ),
        h(Payload, { tube, task }),
      ),
    task && may('operator', tube) && h('p', null, h('a', { href: to`#/tubes/${tube}?copy=${id}` }, 'Put a copy'), ' with another payload or other options'),
  ];
}

/** Shown at once, or when a person asks for it. */
class Hideable extends Component {
  constructor(props) {
    super(props);
    this.state = { isOpen: !hidesPayloads() };
  }

  render({ what, children }, { isOpen }) {
    return isOpen ? children : h('p', null, h('button', { type: 'button', onClick: () => this.setState({ isOpen: true }) }, `Show the ${what}`));
  }
}

function facts(task) {
  const moment = (name, at) => [name, at === undefined ? undefined : h(Moment, { at })];
  return [
    ['Attempts', task.attempts === undefined ? undefined : count(task.attempts)],
    moment('Last failure', task.failed_at),
    ['Priority', task.pri === undefined ? undefined : String(task.pri)],
    ['Time to live', task.ttl === undefined ? undefined : duration(task.ttl)],
    ['Time to run', task.ttr === undefined ? undefined : duration(task.ttr)],
    moment('Put', task.created),
    moment('Changes by itself', task.due),
    ['Sub-queue', task.utube === undefined ? undefined : h(Foreign, { text: task.utube })],
    ['Taken by', task.user === undefined ? undefined : h(Foreign, { text: task.user })],
    ['Connection', task.connection === undefined ? undefined : String(task.connection)],
    moment('Taken', task.taken_at),
    moment('Lease ends', task.lease_ends),
  ];
}

/** The states of a task's life, the present one marked. */
function Life({ task }) {
  const steps = [
    ['put', task.created],
    ['delayed', task.state === 'delayed' ? task.due : undefined],
    ['ready', undefined],
    ['taken', task.taken_at],
    ['buried', task.state === 'buried' ? task.failed_at : undefined],
    ['done', undefined],
  ];
  return h(
    'ol',
    { class: 'life', 'aria-label': 'Life of the task' },
    steps.map(([name, at]) =>
      h(
        'li',
        { key: name, class: `${name} ${name === task.state ? 'present' : ''}`, 'aria-current': name === task.state ? 'step' : undefined },
        h('b', null, name),
        at !== undefined && h('small', null, name === 'delayed' ? 'until ' : '', h(Moment, { at })),
      ),
    ),
  );
}

/** What can be done in each state. */
const ACTS = {
  ready: ['reschedule', 'bury', 'move', 'delete'],
  delayed: ['run', 'reschedule', 'bury', 'move', 'delete'],
  taken: ['release', 'bury', 'move', 'delete'],
  buried: ['kick', 'move', 'delete'],
};

const ABOUT = {
  run: ['Run now', 'Its delay ends now: the task is ready.'],
  reschedule: ['Reschedule', 'The task gets this delay, counted from now, and this priority. An empty field changes nothing.'],
  kick: ['Kick', 'The task is ready again, and its attempts are counted anew.'],
  release: ['Release', 'The task is taken away from the worker that holds it, and is ready again. The worker may have done its work: then it is done twice. There is no undo.'],
  bury: ['Bury', 'The task is set aside until a kick.'],
  move: ['Move', 'The task moves to another tube and has a new id there.'],
  delete: ['Delete', 'The task is deleted. For an hour the job that does it can be undone.'],
};

/** Acts on one task are jobs of one task: the audit log has them, and they can be undone. */
class Steering extends Component {
  constructor(props) {
    super(props);
    this.state = { destination: '', delay: '', pri: '' };
  }

  async run(operation, reason) {
    const { tube, id, task } = this.props;
    const filter = { id_from: id, id_to: id, state: task.state };
    const more = operation === 'move' ? { to: this.state.destination } : operation === 'reschedule' ? scheduleOf(this.state) : {};
    const job = await finished(tube, await begin(tube, { operation, filter, reason, ...more }));
    if (job.state !== 'done') throw new Problem(409, { detail: job.error || `The job is ${job.state}.` });
    if (Number(job.changed) === 0) throw new Problem(409, { detail: `The task is not ${task.state} any more${operation === 'reschedule' ? ', or it was so already' : ''}: nothing was changed.` });
    if (operation === 'delete' || operation === 'move') location.hash = to`#/tubes/${tube}/jobs/${job.id}`;
    const link = Number(job.kept) > 0 ? { name: 'Undo…', href: to`#/tubes/${tube}/jobs/${job.id}` } : undefined;
    return [`${ABOUT[operation][0]}: ${outcome(job)}.`, link];
  }

  render({ tube, id, task, after }, { destination }) {
    const acts = (ACTS[task.state] ?? []).filter((operation) => operation !== 'reschedule' || task.pri !== undefined);
    const input = (key, more) => h('input', { value: this.state[key], onInput: (event) => this.setState({ [key]: event.target.value }), ...more });
    return h(
      'div',
      { class: 'buttons' },
      acts.map((operation) => {
        const [name, says] = ABOUT[operation];
        const field =
          operation === 'move' ? h(Field, { name: 'To the tube' }, input('destination')) : operation === 'reschedule' && scheduleFields(this.state, input);
        return h(
          Act,
          {
            key: operation,
            name,
            title: `${name}: task ${id}`,
            tube,
            says,
            kind: operation === 'delete' ? 'grave' : '',
            withReason: true,
            run: (reason) => this.run(operation, reason),
            after,
          },
          field,
        );
      }),
    );
  }
}
