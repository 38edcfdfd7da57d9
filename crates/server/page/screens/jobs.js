// Jobs of a tube, and one job: how far it is, and its undo.

import { h } from '../vendor/preact.mjs';
import { get, path, stringify } from '../api.js';
import { count, duration } from '../format.js';
import { OPERATIONS, Progress, control, isOver, look, outcome, undo } from '../jobs.js';
import { Act, Empty, Facts, Foreign, Moment, Table, to } from '../ui.js';

const titled = ({ names: [tube, id] }) => (id === undefined ? `Jobs of ${tube} · Lycosa` : `Job ${id} of ${tube} · Lycosa`);

export const jobs = {
  title: titled,
  load: ({ names: [tube] }, signal) => get(path`v1/tubes/${tube}/jobs`, signal),
  draw: drawAll,
};

export const job = {
  title: titled,
  load: async ({ names: [tube, id] }, signal) => ({ job: await look(tube, id, signal) }),
  draw: drawOne,
};

/** Jobs of all tubes that the token may see. */
export const allJobs = {
  title: () => 'Jobs · Lycosa',
  load: ({ query }, signal) => get(query.get('before') ? path`v1/jobs?before=${query.get('before')}` : 'v1/jobs', signal),
  draw: drawEvery,
};

/** Jobs that the server lists at once. */
const LISTED = 100;

const nameOf = (one) => `${OPERATIONS[one.operation]?.name ?? one.operation}${one.dry_run ? ' (dry run)' : ''}`;

function List({ jobs: all, withTube = false }) {
  const rows = all.map((one) =>
    h(
      'tr',
      { key: one.id },
      h('th', { scope: 'row' }, h('a', { href: to`#/tubes/${one.tube}/jobs/${one.id}` }, `${one.id} ${nameOf(one)}`)),
      withTube && h('td', null, h('a', { href: to`#/tubes/${one.tube}` }, h(Foreign, { text: one.tube }))),
      h('td', null, one.state),
      h('td', null, outcome(one)),
      h('td', { class: 'minor' }, h(Foreign, { text: one.user ?? '' })),
      h('td', { class: 'minor' }, h(Moment, { at: one.began })),
      h('td', { class: 'minor' }, one.reason ? h(Foreign, { text: one.reason }) : '–'),
    ),
  );
  const columns = [['job', 'Job'], withTube && ['tube', 'Tube'], ['state', 'State'], ['outcome', 'Outcome'], ['user', 'User', 'minor'], ['began', 'Began', 'minor'], ['reason', 'Reason', 'minor']];
  return h(Table, { caption: 'Jobs', columns: columns.filter(Boolean), rows });
}

function drawAll({ names: [tube] }, { jobs: all }) {
  return [
    h('h1', null, h('a', { href: to`#/tubes/${tube}` }, h(Foreign, { text: tube })), ' / Jobs'),
    all.length === 0 ? h(Empty, { kind: 'none' }, 'No job has changed or counted tasks of this tube.') : h(List, { jobs: all }),
  ];
}

function drawEvery(route, { jobs: all }) {
  const unfinished = all.filter((one) => !isOver(one));
  const past = all.filter(isOver);
  return [
    h('h1', null, 'Jobs'),
    all.length === 0 && h(Empty, { kind: 'none' }, 'No job has changed or counted tasks of a tube that this token may see.'),
    unfinished.length > 0 && [h('h2', null, `Unfinished: ${count(unfinished.length)}`), h(List, { jobs: unfinished, withTube: true })],
    past.length > 0 && [h('h2', null, 'Past'), h(List, { jobs: past, withTube: true })],
    h(
      'p',
      { class: 'buttons' },
      route.query.has('before') && h('button', { type: 'button', onClick: () => route.setQuery({ before: '' }) }, 'Newest'),
      all.length === LISTED && h('button', { type: 'button', onClick: () => route.setQuery({ before: String(all.at(-1).id) }, { isStep: true }) }, 'Older'),
    ),
  ];
}

function drawOne(route, { job: one }) {
  const [tube, id] = route.names;
  const after = route.refresh;
  const steer = (name, action, says) =>
    h(Act, { key: action, name, tube, says, asks: action !== 'cancel' ? false : undefined, run: async () => `The job is ${(await control(tube, id, action)).state}.`, after });
  const mayUndo = isOver(one) && Number(one.kept ?? 0) > 0 && one.undo_until !== undefined && one.operation !== 'undo';
  return [
    h(
      'div',
      { class: 'heading' },
      h('h1', null, h('a', { href: to`#/tubes/${tube}` }, h(Foreign, { text: tube })), ' / ', h('a', { href: to`#/tubes/${tube}/jobs` }, 'Jobs'), ` / ${id}`),
      h(
        'div',
        { class: 'buttons' },
        one.state === 'running' && steer('Pause', 'pause'),
        one.state === 'paused' && steer('Resume', 'resume'),
        !isOver(one) && steer('Cancel the job', 'cancel', 'Tasks that it has changed stay changed; an undo brings them back.'),
        mayUndo &&
          h(Act, {
            name: 'Undo',
            title: `Undo job ${id}`,
            tube,
            kind: 'main',
            withReason: true,
            says: `${count(one.kept)} of ${count(one.changed)} changed tasks can be brought back, each if nothing has happened to it since.`,
            run: async (reason) => {
              const begun = await undo(tube, id, reason);
              location.hash = to`#/tubes/${tube}/jobs/${begun.id}`;
              return `Job ${begun.id} undoes job ${id}.`;
            },
          }),
      ),
    ),
    h('p', null, h('strong', null, `${nameOf(one)}: ${one.state}. `), `${outcome(one)}.`),
    h(Progress, { job: one }),
    one.error && h('p', { class: 'refusal', role: 'alert' }, h(Foreign, { text: one.error })),
    h(
      'section',
      { class: 'panel' },
      h(Facts, {
        facts: [
          ['Filter', one.filter === undefined ? undefined : h('code', null, h(Foreign, { text: stringify(one.filter) }))],
          ['To the tube', one.to ? h(Foreign, { text: one.to }) : undefined],
          ['Delay', one.delay === undefined ? undefined : duration(one.delay)],
          ['Priority', one.pri === undefined ? undefined : String(one.pri)],
          ['Undoes job', one.undoes === undefined ? undefined : h('a', { href: to`#/tubes/${tube}/jobs/${one.undoes}` }, String(one.undoes))],
          ['User', one.user === undefined ? undefined : h(Foreign, { text: one.user })],
          ['Reason', one.reason ? h(Foreign, { text: one.reason }) : undefined],
          ['At most', one.rate ? `${count(one.rate)} tasks a second` : undefined],
          ['Began', h(Moment, { at: one.began })],
          ['Ended', one.ended === undefined ? undefined : h(Moment, { at: one.ended })],
          ['Undo until', mayUndo ? h(Moment, { at: one.undo_until }) : undefined],
        ],
      }),
    ),
  ];
}
