// What screens are made of: texts of others, times, empty states, buttons that ask first, tables.
//
// Everything becomes text nodes and attributes; no HTML is ever parsed from data.

import { Component, h } from './vendor/preact.mjs';
import { absolute, relative, visible, visibleLine } from './format.js';
import { may } from './access.js';

/** A link to a screen: to`#/tubes/${name}`. */
export function to(parts, ...names) {
  return parts.reduce((text, part, at) => text + encodeURIComponent(String(names[at - 1])) + part);
}

/** Text of others, in one line and in a direction of its own. */
export function Foreign({ text, lines = false }) {
  return h('bdi', { class: 'foreign' }, lines ? visible(text) : visibleLine(text));
}

export function Moment({ at, none = '–' }) {
  if (at === undefined || at === null) return none;
  return h('time', { title: absolute(at), dateTime: toIso(at) }, relative(at));
}

function toIso(at) {
  const date = new Date(at * 1000);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

export function State({ state }) {
  return h('span', { class: `state ${state}` }, state);
}

/** Why there is nothing: none, filtered out, or not allowed. */
export function Empty({ kind, children }) {
  const words = { none: 'None.', filtered: 'Nothing matches.', denied: 'Not allowed.' };
  return h('p', { class: `empty ${kind}` }, h('strong', null, words[kind]), ' ', children);
}

/** A refusal, in the server's words. */
export function Refusal({ problem }) {
  if (problem.status === 403) return h(Empty, { kind: 'denied' }, h(Foreign, { text: problem.message }));
  return h('p', { class: 'refusal', role: 'alert' }, h(Foreign, { text: problem.message }));
}

export function Facts({ facts }) {
  const shown = facts.filter((fact) => fact && fact[1] !== undefined && fact[1] !== null);
  return h(
    'dl',
    { class: 'facts' },
    shown.map(([name, value]) => h('div', { key: name }, h('dt', null, name), h('dd', null, value))),
  );
}

/** A card with a number, for the top of a screen. */
export function Figure({ name, value, note, href, kind = '' }) {
  const inside = [h('span', { class: 'name' }, name), h('b', null, value), note && h('span', { class: 'note' }, note)];
  return href ? h('a', { class: `figure ${kind}`, href }, inside) : h('div', { class: `figure ${kind}` }, inside);
}

/** Figures in full rows: the sheet arranges them by their number. */
export function Figures({ children }) {
  const shown = children.flat().filter(Boolean);
  return h('div', { class: `figures of-${shown.length}` }, shown);
}

/** A table that scrolls by itself where it is wider than the page. `columns`: [key, title, kind]. */
export function Table({ caption, columns, rows, sort, onSort }) {
  const head = columns.map(([key, title, kind]) => {
    const order = sort === key ? 'ascending' : sort === `-${key}` ? 'descending' : undefined;
    const mark = order ? (order === 'ascending' ? ' ▲' : ' ▼') : '';
    const next = sort === `-${key}` ? key : `-${key}`;
    const inside = onSort && title && kind !== 'choice'
      ? h('button', { type: 'button', class: 'sort', onClick: () => onSort(next) }, title, h('span', { 'aria-hidden': 'true' }, mark))
      : kind === 'steer' || !title ? h('span', { class: 'hidden' }, title || (kind === 'choice' ? 'Choice' : 'Curve')) : title;
    return h('th', { key, scope: 'col', class: kind, 'aria-sort': order }, inside);
  });
  return h(
    'div',
    { class: 'table', role: 'region', 'aria-label': caption, tabIndex: 0 },
    h('table', null, h('thead', null, h('tr', null, head)), h('tbody', null, rows)),
  );
}

/** A dialog over the page; Escape closes it. */
export class Dialog extends Component {
  componentDidMount() {
    this.element.showModal();
  }

  /** Gives the focus back to the button that opened it. */
  componentWillUnmount() {
    this.element.close();
  }

  render({ title, onClose, children }) {
    return h(
      'dialog',
      {
        ref: (element) => { this.element = element ?? this.element; },
        'aria-label': title,
        onCancel: (event) => {
          event.preventDefault();
          onClose();
        },
      },
      h('h2', null, title),
      children,
    );
  }
}

const told = [];
let redraw = () => {};

/**
 * Says what came of an action, for ten seconds, with a link to what follows.
 * @param {string} text
 * @param {{name: string, href: string}} [link]
 */
export function tell(text, link) {
  told.push({ text, link });
  redraw();
  setTimeout(() => {
    told.shift();
    redraw();
  }, 10000);
}

export function onTold(draw) {
  redraw = draw;
}

export function Told() {
  return h('div', { class: 'told', role: 'status', 'aria-live': 'polite' }, told.map(({ text, link }) => h('p', null, h(Foreign, { text }), link && [' ', h('a', { href: link.href }, link.name)])));
}

/**
 * A button that says what will happen and asks before it does it. It is drawn only if the token has `role` for `tube`.
 *
 * `run(reason)` does it and returns what is told: a text, or a text and a link. `typed`: a text that has to be typed first. `withReason`: asks for a reason,
 * which the audit log keeps. `children` are shown in the dialog.
 */
export class Act extends Component {
  constructor(props) {
    super(props);
    this.state = { isOpen: false, isBusy: false, problem: null, reason: '', typed: '' };
  }

  open() {
    if (this.props.asks === false) this.run();
    else this.setState({ isOpen: true, problem: null, reason: '', typed: '' });
  }

  async run() {
    this.setState({ isBusy: true, problem: null });
    try {
      const [text, link] = [await this.props.run(this.state.reason || undefined)].flat();
      this.setState({ isBusy: false, isOpen: false });
      if (text) tell(text, link);
      this.props.after?.();
    } catch (problem) {
      if (this.props.asks === false) tell(problem.message);
      this.setState({ isBusy: false, problem });
    }
  }

  render({ name, title = name, says, typed, withReason, role = 'operator', tube, kind = '', disabled, children }, state) {
    if (!may(role, tube)) return null;
    const button = h(
      'button',
      { type: 'button', class: `act ${kind}`, disabled: disabled || state.isBusy, onClick: () => this.open() },
      name,
    );
    // The button stays the same element, so that it has the focus again when the dialog closes.
    if (!state.isOpen) return h('span', null, button);
    const isSure = typed === undefined || state.typed === typed;
    const submit = (event) => {
      event.preventDefault();
      if (isSure && !state.isBusy) this.run();
    };
    return h(
      'span',
      null,
      button,
      h(
        Dialog,
        { title, onClose: () => this.setState({ isOpen: false }) },
        says && h('p', null, says),
        children,
        h(
          'form',
          { onSubmit: submit },
          typed !== undefined &&
            h(
              'label',
              null,
              h('span', null, 'Type ', h('code', null, h(Foreign, { text: typed })), ' to confirm'),
              h('input', {
                value: state.typed,
                autocomplete: 'off',
                spellcheck: false,
                onInput: (event) => this.setState({ typed: event.target.value }),
              }),
            ),
          withReason &&
            h(
              'label',
              null,
              h('span', null, 'Reason, for the audit log'),
              h('input', { value: state.reason, onInput: (event) => this.setState({ reason: event.target.value }) }),
            ),
          state.problem && h(Refusal, { problem: state.problem }),
          h(
            'p',
            { class: 'buttons' },
            h('button', { type: 'button', onClick: () => this.setState({ isOpen: false }) }, 'Cancel'),
            h('button', { type: 'submit', class: `act ${kind}`, disabled: !isSure || state.isBusy }, name),
          ),
        ),
      ),
    );
  }
}

/** Copies a text; on plain HTTP, where browsers have no clipboard API, by a selection. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return tell('Copied.');
    } catch {
      // The browser's setting forbids it; the selection below may be allowed.
    }
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'offscreen';
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  return tell(isCopied ? 'Copied.' : 'The browser did not let the page copy: select the text and press Ctrl+C.');
}

export function Copy({ text }) {
  return h('button', { type: 'button', onClick: () => copy(text) }, 'Copy');
}

/** Opens a task of the tube by its id. */
export function OpenTask({ tube }) {
  const submit = (event) => {
    event.preventDefault();
    location.hash = to`#/tubes/${tube}/tasks/${event.target.elements.id.value}`;
  };
  return h(
    'form',
    { class: 'open', onSubmit: submit },
    h(
      'label',
      { class: 'inline' },
      h('span', null, 'Task id'),
      h('input', { name: 'id', inputMode: 'numeric', pattern: '[0-9]+', required: true, autocomplete: 'off', size: 8 }),
    ),
    h('button', { type: 'submit' }, 'Open'),
  );
}

/** A labelled input of a form. */
export function Field({ name, hint, children }) {
  return h('label', null, h('span', null, name, hint && h('small', null, ` ${hint}`)), children);
}
