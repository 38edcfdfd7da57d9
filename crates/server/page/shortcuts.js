// Keys of the page, and the panel that lists them. They can be turned off, as some people speak to their browser or hit keys by
// mistake; the choice is kept for the tab.

import { h } from './vendor/preact.mjs';
import { Dialog } from './ui.js';

const STORED = 'lycosa.shortcuts';

/** The second key after g, and the screen. */
export const PLACES = { o: 'Overview', t: 'Tubes', i: 'Issues', s: 'Sessions', j: 'Jobs', a: 'Audit', n: 'Instance', k: 'Tokens' };

/** Milliseconds between g and the key after it. */
const PAIR = 1500;

const KEYS = [
  ['?', 'These keys'],
  ['/', 'To the filter or search field'],
  ['p', 'Pause or resume the refresh'],
  ['r', 'Refresh once'],
];

export const keys = {
  get areOn() {
    return sessionStorage.getItem(STORED) !== 'off';
  },
  toggle() {
    sessionStorage.setItem(STORED, this.areOn ? 'off' : 'on');
  },
};

/** When g was pressed, in milliseconds. */
let began = -Infinity;

/**
 * Does what a key stands for. Keys of fields, of dialogs and with Ctrl, Alt or Meta stay the browser's.
 * @param {KeyboardEvent} event
 * @param {{help: () => void, pause: () => void, refresh: () => void, go: (name: string) => void}} acts
 */
export function onKey(event, { help, pause, refresh, go }) {
  const isField = event.target instanceof Element && event.target.closest('input, textarea, select, [contenteditable]');
  if (!keys.areOn || event.ctrlKey || event.altKey || event.metaKey || isField || document.querySelector('dialog[open]')) return;
  const isSecond = event.timeStamp - began < PAIR;
  began = -Infinity;
  const place = isSecond ? PLACES[event.key] : undefined;
  if (place) go(place);
  else if (event.key === 'g') began = event.timeStamp;
  else if (event.key === '?') help();
  else if (event.key === 'p') pause();
  else if (event.key === 'r') refresh();
  else if (event.key === '/') /** @type {HTMLElement | null} */ (document.querySelector('main input[type=search], main .tools input, main form input'))?.focus();
  else return;
  event.preventDefault();
}

/** `places`: names of the screens that the token may see. */
export function Shortcuts({ places, onClose, onToggle }) {
  const row = (key, text) => h('div', { key }, h('dt', null, key.split(' ').map((one) => h('kbd', { key: one }, one))), h('dd', null, text));
  const shown = Object.entries(PLACES).filter(([, name]) => places.includes(name));
  return h(
    Dialog,
    { title: 'Keys', onClose },
    h('dl', { class: 'keys' }, KEYS.map(([key, text]) => row(key, text)), shown.map(([key, name]) => row(`g ${key}`, name))),
    h(
      'label',
      { class: 'inline' },
      h('input', { type: 'checkbox', checked: keys.areOn, onChange: onToggle }),
      h('span', null, 'Keys are on'),
    ),
    h('p', { class: 'buttons' }, h('button', { type: 'button', onClick: onClose }, 'Close')),
  );
}
