// Jobs: changes of many tasks (or of one), which the server does in slices. What they do stands in docs/steering.md.

import { h } from './vendor/preact.mjs';
import { get, numberOf, path, post } from './api.js';
import { count, of } from './format.js';
import { Field } from './ui.js';

/** Milliseconds between two looks at a job. */
const LOOK = 300;

const OVER = ['done', 'cancelled', 'failed'];

export const isOver = (job) => OVER.includes(job.state);

/** What an operation changes, and what becomes of it. */
export const OPERATIONS = {
  kick: { name: 'Kick', says: 'buried tasks become ready, and their attempts are counted anew', states: ['buried'] },
  release: {
    name: 'Release',
    says: 'taken tasks are taken away from their workers and become ready; a worker may have done its work already, then it is done twice',
    states: ['taken'],
  },
  run: { name: 'Run now', says: 'delayed tasks become ready', states: ['delayed'] },
  reschedule: {
    name: 'Reschedule',
    says: 'ready and delayed tasks get this delay, counted from now, and this priority; an empty field changes nothing',
    states: ['ready', 'delayed'],
  },
  bury: { name: 'Bury', says: 'tasks are set aside until a kick', states: ['ready', 'delayed', 'taken'] },
  delete: { name: 'Delete', says: 'tasks are deleted', states: ['ready', 'delayed', 'buried', 'taken'] },
  move: { name: 'Move', says: 'tasks move to another tube, with new ids', states: ['ready', 'delayed', 'buried', 'taken'] },
};

/** The delay and the priority of a form, exact; an empty field is none. */
export const scheduleOf = ({ delay, pri }) => ({
  delay: delay ? Number(delay) : undefined,
  pri: pri ? numberOf(pri) : undefined,
});

/** The fields of a new delay and priority. `input(key, more)` makes the input of one. */
export const scheduleFields = ({ delay, pri }, input) => [
  h(Field, { key: 'delay', name: 'Delay', hint: 'seconds; 0: ready at once' }, input('delay', { type: 'number', min: 0, step: 'any', required: !pri })),
  h(Field, { key: 'pri', name: 'Priority', hint: 'lower first' }, input('pri', { type: 'number', min: 0, step: 1, required: !delay })),
];

const jobPath = (tube, id) => path`v1/tubes/${tube}/jobs/${id}`;

export const begin = (tube, order) => post(path`v1/tubes/${tube}/jobs`, order);
export const look = (tube, id, signal) => get(jobPath(tube, id), signal);
export const control = (tube, id, action, more = {}) => post(`${jobPath(tube, id)}/control`, { action, ...more });
export const undo = (tube, id, reason) => post(`${jobPath(tube, id)}/undo`, { reason });

/**
 * Waits until a job is over; `onStep` sees it on the way.
 * @param {(job: any) => void} [onStep]
 */
export async function finished(tube, job, onStep = () => {}) {
  let seen = job;
  while (!isOver(seen) && seen.state !== 'paused') {
    onStep(seen);
    await new Promise((resolve) => setTimeout(resolve, LOOK));
    seen = await look(tube, job.id);
  }
  onStep(seen);
  return seen;
}

/** What came of a job, in a sentence that hides nothing. */
export function outcome(job) {
  if (job.operation === 'undo') {
    const lost = [
      Number(job.touched_since) > 0 && `${count(job.touched_since)} were changed or taken since`,
      Number(job.gone) > 0 && `${count(job.gone)} no longer exist`,
    ].filter(Boolean);
    return `${count(job.undone ?? 0)} of ${of(job.total, 'task')} undone${lost.length ? `; ${lost.join(', ')}` : ''}`;
  }
  if (job.operation === 'count') return `${of(job.matched, 'task')} matched`;
  if (job.dry_run) return `${of(job.matched, 'task')} would be changed`;
  return `${of(job.changed, 'task')} changed`;
}

/** How far a job is. */
export function Progress({ job }) {
  const total = Math.max(1, Number(job.total));
  return h(
    'p',
    { class: 'progress' },
    h('progress', { max: total, value: Math.min(total, Number(job.scanned)), 'aria-label': 'Progress' }),
    ` ${count(job.scanned)} of ${count(job.total)} looked at, ${outcome(job)}`,
  );
}
