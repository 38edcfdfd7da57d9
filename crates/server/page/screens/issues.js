// Issues: what is wrong, what it means, what to do.

import { h } from '../vendor/preact.mjs';
import { path, post } from '../api.js';
import { of } from '../format.js';
import { issuesOf } from '../issues.js';
import { loadStatus } from '../tubes.js';
import { Act, Copy, Foreign } from '../ui.js';

export const title = () => 'Issues · Lycosa';

/** Findings on the overview; the screen has all. */
const SHORT = 5;

const WORDS = { bad: 'Act now', warn: 'Look at it', note: 'Know it' };

export const load = (route, signal) => loadStatus(signal, { issues: true });

export function draw(route, { tubes, instance }) {
  return [
    h('h1', null, 'Issues'),
    h(IssueList, { issues: issuesOf({ tubes, instance, health: route.health }), after: route.refresh }),
    !instance && h('p', { class: 'hint' }, 'This token sees its own tubes; a token for every tube sees the server too.'),
  ];
}

/** `hidden`: tubes with faults that are not among `issues`. */
export function IssueList({ issues, after, hidden = 0, isShort = false, hasActs = !isShort }) {
  if (issues.length === 0) return h('p', { class: 'fine' }, 'Nothing is wrong that the page can see.');
  const shown = isShort ? issues.slice(0, SHORT) : issues;
  return h(
    'section',
    { class: 'issues', 'aria-label': 'What is wrong' },
    h('ul', null, shown.map((issue) => h(Issue, { key: issue.id, issue, after, isShort, hasActs }))),
    shown.length < issues.length && h('p', null, h('a', { href: '#/issues' }, hidden > 0 ? `All issues, and those of ${of(hidden, 'further tube')}` : `All ${of(issues.length, 'issue')}`)),
  );
}

function Issue({ issue, after, isShort, hasActs }) {
  const { kind, gravity, tube, title, means, act, href, link } = issue;
  const command = isShort ? undefined : issue.command;
  const resumes = kind === 'paused' && tube !== undefined;
  const checkpoints = kind === 'disk';
  return h(
    'li',
    { class: gravity },
    h('b', { class: 'gravity' }, WORDS[gravity]),
    h(
      'div',
      null,
      h('p', { class: 'title' }, tube !== undefined && h('span', null, h(Foreign, { text: tube }), ': '), h(Foreign, { text: title })),
      h('p', { class: 'means' }, h(Foreign, { text: means }), ' ', act, ' ', href && href !== location.hash && h('a', { href }, link)),
      hasActs && (resumes || checkpoints || command) &&
        h(
          'div',
          { class: 'buttons' },
          resumes &&
            h(Act, {
              name: 'Resume',
              title: `Resume ${tube}`,
              tube,
              says: 'The tube hands out tasks again, to waiting calls at once.',
              withReason: true,
              run: async (reason) => ((await post(path`v1/tubes/${tube}/resume`, { reason })).changed ? 'Resumed.' : 'It was not paused.'),
              after,
            }),
          checkpoints &&
            h(Act, {
              name: 'Take a checkpoint',
              role: 'administrator',
              says: 'The server writes a snapshot of the tasks that are left, and removes the files that a start can do without.',
              run: async () => {
                await post('v1/checkpoint');
                return 'The checkpoint is complete.';
              },
              after,
            }),
          command && [h('code', null, command), h(Copy, { text: command })],
        ),
    ),
  );
}
