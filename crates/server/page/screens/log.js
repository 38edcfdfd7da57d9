// Log: the newest lines that the server keeps in memory.

import { h } from '../vendor/preact.mjs';
import { get } from '../api.js';
import { count } from '../format.js';
import { Copy, Empty, Foreign } from '../ui.js';

export const title = () => 'Log · Lycosa';

const LIMIT = 500;
const LEVELS = ['ERROR', 'WARN', 'INFO', 'DEBUG', 'TRACE'];

export const load = (route, signal) => get(`v1/log?limit=${LIMIT}`, signal);

/** The level stands behind the time, or in a member of a JSON line. */
export function levelOf(text) {
  const found = /^(?:\S+\s+|.*?"level":\s*")(ERROR|WARN|INFO|DEBUG|TRACE)\b/.exec(text);
  return found ? found[1] : undefined;
}

export function draw(route, { lines }) {
  const filter = (route.query.get('filter') ?? '').toLowerCase();
  const least = LEVELS.indexOf(route.query.get('level') ?? 'TRACE');
  const matching = lines.filter(({ text }) => {
    const level = levelOf(text);
    return (level === undefined || LEVELS.indexOf(level) <= least) && text.toLowerCase().includes(filter);
  });
  const newest = [...matching].reverse();
  return [
    h('h1', null, h('a', { href: '#/instance' }, 'Instance'), ' / Log'),
    h(
      'div',
      { class: 'tools' },
      h('label', { class: 'inline' }, h('span', null, 'Filter'), h('input', { type: 'search', value: route.query.get('filter') ?? '', onInput: (event) => route.setQuery({ filter: event.target.value }) })),
      h(
        'label',
        { class: 'inline' },
        h('span', null, 'Level'),
        h(
          'select',
          { value: LEVELS[least], onChange: (event) => route.setQuery({ level: event.target.value === 'TRACE' ? '' : event.target.value }) },
          LEVELS.map((level) => h('option', { key: level, value: level }, level === 'TRACE' ? 'all' : `${level.toLowerCase()} and graver`)),
        ),
      ),
      h('span', { class: 'tally' }, `${count(matching.length)} of ${count(lines.length)}, the newest first`),
      h(Copy, { text: matching.map(({ text }) => text).join('\n') }),
    ),
    newest.length > 0
      ? h(
        'ol',
        { class: 'log', tabIndex: 0, 'aria-label': 'Lines of the log' },
        newest.map(({ number, text }) => h('li', { key: number, class: (levelOf(text) ?? '').toLowerCase() }, h(Foreign, { text }))),
      )
      : lines.length > 0
        ? h(Empty, { kind: 'filtered' }, h('button', { type: 'button', onClick: () => route.setQuery({ filter: '', level: '' }) }, 'Show all lines'))
        : h(Empty, { kind: 'none' }, 'The server has logged nothing yet.'),
  ];
}
