// Tokens: who may use this door, and what each may do; makes and revokes them.

import { Component, h } from '../vendor/preact.mjs';
import { get, path, post, remove } from '../api.js';
import { getAccess, may } from '../access.js';
import { of } from '../format.js';
import { Act, Copy, Empty, Field, Foreign, Moment, Refusal, Table } from '../ui.js';

export const title = () => 'Tokens · Lycosa';

export const load = (route, signal) => get('v1/tokens', signal);

export function draw(route, { tokens }) {
  const own = getAccess()?.name;
  const rows = tokens.map((token) =>
    h(
      'tr',
      { key: token.name },
      h('th', { scope: 'row' }, h(Foreign, { text: token.name }), token.name === own && ' (this one)'),
      h('td', null, token.role),
      h('td', null, h(Foreign, { text: token.tubes.join(', ') })),
      h('td', { class: 'minor' }, h(Moment, { at: token.created })),
      h('td', null, token.is_expired ? 'ended' : h(Moment, { at: token.expires, none: 'never' })),
      h(
        'td',
        { class: 'steer' },
        h(Act, {
          name: 'Revoke',
          title: `Revoke ${token.name}`,
          role: 'administrator',
          kind: 'grave',
          typed: token.name,
          says: `Requests with this token are refused from now on, and its waiting calls end.${token.name === own ? ' It is the one that this page uses.' : ''} There is no undo.`,
          run: async () => {
            await remove(path`v1/tokens/${token.name}`);
            return `Revoked ${token.name}.`;
          },
          after: route.refresh,
        }),
      ),
    ),
  );
  return [
    h('h1', null, 'Tokens'),
    h('p', { class: 'tally' }, of(tokens.length, 'token')),
    rows.length > 0
      ? h(Table, {
        caption: 'Tokens',
        columns: [['name', 'Name'], ['role', 'Role'], ['tubes', 'Tubes'], ['created', 'Made', 'minor'], ['ends', 'Ends'], ['acts', 'Acts', 'steer']],
        rows,
      })
      : h(Empty, { kind: 'none' }, 'No token exists.'),
    h('div', { class: 'columns' }, may('administrator') && h(NewToken, { after: route.refresh })),
  ];
}

const ROLES = [
  ['viewer', 'looks at tubes and tasks'],
  ['operator', 'puts, takes, finishes and steers tasks too'],
  ['administrator', 'creates and drops tubes, changes the server’s role, makes tokens too'],
];

/** The secret is shown once: no screen and no list has it later. */
class NewToken extends Component {
  constructor(props) {
    super(props);
    this.state = { made: null, problem: null, isBusy: false };
  }

  async add(form) {
    const { name, role, tubes, hours } = form.elements;
    this.setState({ isBusy: true, problem: null });
    try {
      const made = await post('v1/tokens', {
        name: name.value,
        role: role.value,
        tubes: tubes.value.split(',').map((tube) => tube.trim()).filter(Boolean),
        ttl: hours.value ? Number(hours.value) * 3600 : undefined,
      });
      this.setState({ isBusy: false, made });
      form.reset();
      this.props.after();
    } catch (problem) {
      this.setState({ isBusy: false, problem });
    }
  }

  render(_, { made, problem, isBusy }) {
    const submit = (event) => {
      event.preventDefault();
      this.add(event.target);
    };
    return h(
      'form',
      { class: 'panel', onSubmit: submit },
      h('h2', null, 'Make a token'),
      h(Field, { name: 'Name' }, h('input', { name: 'name', required: true, autocomplete: 'off', spellcheck: false })),
      h(
        Field,
        { name: 'Role' },
        h('select', { name: 'role' }, ROLES.map(([role, says]) => h('option', { key: role, value: role }, `${role}: ${says}`))),
      ),
      h(Field, { name: 'Tubes', hint: 'separated by commas; mail-* is all that begin so, * every tube and the server' }, h('input', { name: 'tubes', required: true, defaultValue: '*', spellcheck: false })),
      h(Field, { name: 'Lives for', hint: 'hours; empty: until it is revoked' }, h('input', { name: 'hours', type: 'number', min: 0.01, step: 'any' })),
      problem && h(Refusal, { problem }),
      h('p', { class: 'buttons' }, h('button', { type: 'submit', class: 'act main', disabled: isBusy }, 'Make')),
      made &&
        h(
          'div',
          { class: 'secret', role: 'status' },
          h('p', null, 'The secret of ', h('strong', null, h(Foreign, { text: made.name })), '. It is shown once and stored nowhere:'),
          h('p', { class: 'buttons' }, h('code', { tabIndex: 0 }, made.secret), h(Copy, { text: made.secret }), h('button', { type: 'button', onClick: () => this.setState({ made: null }) }, 'Hide')),
        ),
    );
  }
}
