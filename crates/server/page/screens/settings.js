// Settings: the effective value of each, and where it comes from.

import { h } from '../vendor/preact.mjs';
import { get } from '../api.js';
import { count } from '../format.js';
import { Empty, Foreign, Table } from '../ui.js';

export const title = () => 'Settings · Lycosa';

export const load = (route, signal) => get('v1/settings', signal);

export function draw(route, { settings }) {
  const filter = (route.query.get('filter') ?? '').toLowerCase();
  const isChangedOnly = route.query.has('changed');
  const matching = settings.filter(
    ({ key, value, source, help }) =>
      [key, value, source, help].some((text) => text.toLowerCase().includes(filter)) && !(isChangedOnly && source === 'default'),
  );
  const rows = matching.map(({ key, value, source, default: usual, reloads, help }) =>
    h(
      'tr',
      { key },
      h('th', { scope: 'row' }, h('code', null, key), h('div', { class: 'hint' }, help)),
      h('td', null, h('code', null, value === '' ? '""' : h(Foreign, { text: value })), source !== 'default' && usual !== value && h('div', { class: 'hint' }, `default ${usual === '' ? '""' : usual}`)),
      h('td', null, h(Foreign, { text: source })),
      h('td', { class: 'minor' }, reloads ? 'SIGHUP' : 'restart'),
    ),
  );
  return [
    h('h1', null, h('a', { href: '#/instance' }, 'Instance'), ' / Settings'),
    h(
      'div',
      { class: 'tools' },
      h('label', { class: 'inline' }, h('span', null, 'Filter'), h('input', { type: 'search', value: route.query.get('filter') ?? '', onInput: (event) => route.setQuery({ filter: event.target.value }) })),
      h('button', { type: 'button', 'aria-pressed': String(isChangedOnly), onClick: () => route.setQuery({ changed: isChangedOnly ? '' : '1' }) }, 'Only those that are set'),
      h('span', { class: 'tally' }, `${count(rows.length)} of ${count(settings.length)}`),
    ),
    rows.length > 0
      ? h(Table, { caption: 'Settings', columns: [['key', 'Setting'], ['value', 'Value'], ['source', 'From'], ['reloads', 'Changes by', 'minor']], rows })
      : h(Empty, { kind: 'filtered' }, h('button', { type: 'button', onClick: () => route.setQuery({ filter: '', changed: '' }) }, 'Show all settings')),
  ];
}
