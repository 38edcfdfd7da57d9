// Audit: who steered what, when and why.

import { h } from '../vendor/preact.mjs';
import { get } from '../api.js';
import { Empty, Foreign, Moment, Table, to } from '../ui.js';

export const title = () => 'Audit · Lycosa';

const LIMIT = 100;

export function load({ query }, signal) {
  const asked = new URLSearchParams({ limit: String(LIMIT) });
  for (const name of ['tube', 'before']) if (query.get(name)) asked.set(name, query.get(name));
  return get(`v1/audit?${asked}`, signal);
}

export function draw(route, { entries }) {
  const tube = route.query.get('tube') ?? '';
  const submit = (event) => {
    event.preventDefault();
    route.setQuery({ tube: event.target.elements.tube.value, before: '' });
  };
  const rows = entries.map((entry) =>
    h(
      'tr',
      { key: entry.id },
      h('th', { scope: 'row' }, h(Moment, { at: entry.time })),
      h('td', { class: 'user' }, entry.token !== undefined ? ['token ', h(Foreign, { text: entry.token }), ` (${entry.role})`] : entry.user === undefined ? '–' : h(Foreign, { text: entry.user })),
      h('td', null, entry.operation),
      h('td', { class: 'tube' }, entry.tube === undefined ? '–' : h('a', { href: to`#/tubes/${entry.tube}` }, h(Foreign, { text: entry.tube }))),
      h('td', null, entry.job === undefined ? '–' : h('a', { href: to`#/tubes/${entry.tube}/jobs/${entry.job}` }, String(entry.job))),
      h('td', { class: 'reason' }, entry.reason ? h(Foreign, { text: entry.reason }) : '–'),
    ),
  );
  return [
    h('h1', null, 'Audit'),
    h(
      'form',
      { class: 'tools', onSubmit: submit },
      h('label', { class: 'inline' }, h('span', null, 'Tube'), h('input', { name: 'tube', type: 'search', defaultValue: tube })),
      h('button', { type: 'submit' }, 'Show'),
    ),
    rows.length > 0
      ? h(Table, {
        caption: 'Audit',
        columns: [['time', 'When'], ['user', 'Who'], ['operation', 'What'], ['tube', 'Tube'], ['job', 'Job'], ['reason', 'Why']],
        rows,
      })
      : h(Empty, { kind: tube ? 'filtered' : 'none' }, tube ? 'No entry is about this tube.' : 'Pauses, resumes and jobs are written here.'),
    h(
      'p',
      { class: 'buttons' },
      route.query.has('before') && h('button', { type: 'button', onClick: () => route.setQuery({ before: '' }) }, 'Newest'),
      entries.length === LIMIT &&
        h('button', { type: 'button', onClick: () => route.setQuery({ before: String(entries.at(-1).id) }, { isStep: true }) }, 'Older'),
    ),
  ];
}
