// Reasons why a task is not worked on, or a tube hands out none, as the server's `explain` tells them.

import { h } from './vendor/preact.mjs';
import { Foreign, Moment, to } from './ui.js';

export function Explanation({ explanation, tube, idle }) {
  const { reasons } = explanation;
  if (reasons.length === 0) return h('p', { class: 'fine' }, idle);
  return h('ol', { class: 'reasons' }, reasons.map((reason) => h(Reason, { key: reason.reason, reason, tube })));
}

function Reason({ reason, tube }) {
  const { text, since, until, user, connection, because, by, attempts } = reason;
  const details = [
    by !== undefined && ['by', h('a', { href: to`#/tubes/${tube}/tasks/${by}` }, `task ${by}`)],
    user !== undefined && ['user', h(Foreign, { text: user })],
    connection !== undefined && ['connection', String(connection)],
    since !== undefined && ['since', h(Moment, { at: since })],
    until !== undefined && ['until', h(Moment, { at: until })],
    attempts !== undefined && ['attempts', String(attempts)],
    because && !text.includes(because) && ['because', h(Foreign, { text: because })],
  ].filter(Boolean);
  return h(
    'li',
    null,
    h('strong', null, reason.reason.replace('_', ' ')),
    ': ',
    h(Foreign, { text }),
    details.length > 0 &&
      h('span', { class: 'details' }, details.map(([name, value]) => h('span', { key: name }, ` ${name} `, value))),
  );
}
