// Changing the chosen tasks, or all that match: first what would happen, then the act, then its undo.
//
// Nothing chosen is nothing: without a choice there are no buttons, and "all that match" is a button of its own.

import { Component, h } from './vendor/preact.mjs';
import { may } from './access.js';
import { OPERATIONS, Progress, begin, control, finished, isOver, outcome, scheduleFields, scheduleOf } from './jobs.js';
import { count, of } from './format.js';
import { Dialog, Field, Foreign, Refusal, State, tell } from './ui.js';

/** Tasks of the sample in the dialog. */
const SAMPLE = 5;

/**
 * `scope`: `{ids}` for chosen tasks, or `{filter}` for all that match. `sample`: tasks that are shown in the dialog.
 */
export class Bulk extends Component {
  constructor(props) {
    super(props);
    /** @type {Record<string, any>} */
    this.state = { operation: null, to: '', delay: '', pri: '', rate: '', reason: '', counted: null, running: null, problem: null };
  }

  /** Chosen tasks are meant in the state in which they were chosen; nothing else is added to what was asked. */
  filter() {
    const { ids, filter } = this.props.scope;
    return ids ? { ids: ids.map(({ id, state }) => [id, state]) } : filter;
  }

  /** `counted`: the job that has counted what the filter admits, or none for a dry run. */
  order(counted) {
    const { operation, to, rate, reason } = this.state;
    return {
      operation,
      filter: this.filter(),
      dry_run: counted === undefined,
      counted: counted === undefined ? undefined : Number(counted),
      to: operation === 'move' ? to : undefined,
      ...(operation === 'reschedule' ? scheduleOf(this.state) : {}),
      rate: rate ? Number(rate) : undefined,
      reason: reason || undefined,
    };
  }

  /** Begins the job and follows it to its end. */
  async runJob(counted) {
    const { tube } = this.props;
    const job = await begin(tube, this.order(counted?.id));
    const last = await finished(tube, job, (running) => this.setState({ running }));
    if (last.state === 'failed' || last.state === 'paused') throw new Error(last.error || `the job is ${last.state}`);
    return last;
  }

  async attempt(step) {
    this.setState({ problem: null });
    try {
      await step();
    } catch (problem) {
      this.setState({ problem });
    }
    this.setState({ running: null });
  }

  count = () =>
    this.attempt(async () => {
      const counted = await this.runJob();
      this.setState({ counted: counted.state === 'cancelled' ? null : counted });
    });

  apply = () =>
    this.attempt(async () => {
      const { tube, after } = this.props;
      const done = await this.runJob(this.state.counted);
      this.setState({ operation: null, counted: null });
      tell(`${OPERATIONS[done.operation].name}: ${outcome(done)}${done.state === 'cancelled' ? ', then cancelled' : ''}.`);
      after();
      location.hash = `#/tubes/${encodeURIComponent(tube)}/jobs/${done.id}`;
    });

  render({ tube, isTimed, label, scope, states, sample }, { operation }) {
    if (!may('operator', tube)) return null;
    const offered = Object.entries(OPERATIONS)
      .filter(([key]) => key !== 'reschedule' || isTimed)
      .filter(([, { states: changed }]) => !states || changed.some((state) => states.includes(state)));
    return h(
      'span',
      { class: 'buttons bulk' },
      h('span', null, label),
      offered.map(([key, { name }]) =>
        h(
          'button',
          {
            type: 'button',
            key,
            class: `act ${key === 'delete' ? 'grave' : ''}`,
            onClick: () => this.setState({ operation: key, counted: null, problem: null, to: '', delay: '', pri: '', rate: '', reason: '' }),
          },
          `${name}…`,
        ),
      ),
      operation && this.dialog(tube, scope, sample),
    );
  }

  dialog(tube, scope, sample) {
    const { operation, counted, running, problem } = this.state;
    const { name, says } = OPERATIONS[operation];
    const what = scope.ids ? of(scope.ids.length, 'chosen task') : 'all tasks that match';
    const close = () => !running && this.setState({ operation: null });
    const input = (key, more = {}) =>
      h('input', { value: this.state[key], onInput: (event) => this.setState({ [key]: event.target.value, counted: null }), ...more });
    const submit = (event) => {
      event.preventDefault();
      if (running) return;
      if (counted) this.apply();
      else this.count();
    };
    return h(
      Dialog,
      { title: `${name}: ${what}`, onClose: close },
      h('p', null, `What happens: ${says}.`),
      !scope.ids && h('p', null, 'Filter: ', h('code', null, h(Foreign, { text: JSON.stringify(scope.filter) }))),
      h(
        'form',
        { onSubmit: submit },
        operation === 'move' && h(Field, { name: 'To the tube' }, input('to', { required: true })),
        operation === 'reschedule' && scheduleFields(this.state, input),
        !scope.ids && h(Field, { name: 'At most', hint: 'tasks a second; empty: no bound' }, input('rate', { type: 'number', min: 1, step: 1 })),
        h(Field, { name: 'Reason, for the audit log' }, input('reason')),
        counted && h(Counted, { counted, sample }),
        running && h(Progress, { job: running }),
        problem && h(Refusal, { problem }),
        h(
          'p',
          { class: 'buttons' },
          running && !isOver(running)
            ? h('button', { type: 'button', onClick: () => control(tube, running.id, 'cancel') }, 'Cancel the job')
            : h('button', { type: 'button', onClick: close }, 'Cancel'),
          counted
            ? h(
              'button',
              { type: 'submit', class: `act ${operation === 'delete' ? 'grave' : 'main'}`, disabled: !!running || Number(counted.matched) === 0 },
              `${name} ${of(counted.matched, 'task')}`,
            )
            : h('button', { type: 'submit', class: 'act main', disabled: !!running }, 'Count first'),
        ),
      ),
    );
  }
}

function Counted({ counted, sample }) {
  return h(
    'div',
    null,
    h('p', { role: 'status' }, h('strong', null, outcome(counted)), `, of ${count(counted.total)} looked at.`),
    Number(counted.matched) > 0 &&
      sample.length > 0 && [
        h('p', null, 'Among them, as the list shows:'),
        h(
          'ul',
          { class: 'sample' },
          sample.slice(0, SAMPLE).map((task) => h('li', { key: task.id }, `${task.id} `, h(State, { state: task.state }))),
        ),
      ],
  );
}
