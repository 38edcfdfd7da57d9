// The members of a group: who leads, who votes, who is behind; hands over to another voter.

import { h } from './vendor/preact.mjs';
import { post } from './api.js';
import { count, of } from './format.js';
import { Act, Foreign, Table } from './ui.js';

/** How a member is, and whether that is bad. */
function health({ is_connected: isConnected, is_active: isActive, awaits_snapshot: awaitsSnapshot }) {
  if (awaitsSnapshot) return ['gets a snapshot', true];
  if (!isConnected) return ['not connected', true];
  return isActive === false ? ['does not answer', true] : ['connected', false];
}

export function Group({ election, after }) {
  const { leader, term, voters, node, members = [] } = election;
  const isLeader = (member) => Number(leader) !== 0 && member.node === leader;
  const rows = members.map((member) => {
    const [text, isBad] = health(member);
    return h(
      'tr',
      { key: member.node },
      h('th', { scope: 'row' }, `Node ${member.node}`),
      h('td', null, isLeader(member) ? h('span', { class: 'state ready' }, 'leader') : member.standing),
      h('td', { class: 'minor' }, h(Foreign, { text: member.address })),
      h('td', { class: isBad ? 'bad-text' : '' }, text),
      h('td', { class: 'number' }, member.lag === undefined ? '–' : [count(member.lag), h('span', { class: 'minor' }, Number(member.lag) === 1 ? ' entry' : ' entries')]),
      h(
        'td',
        { class: 'steer' },
        !isLeader(member) && member.standing === 'voter' &&
          h(Act, {
            name: 'Lead',
            title: `Node ${member.node} leads`,
            role: 'administrator',
            says: `The present leader asks node ${member.node} to lead. Clients go on there without a new connection, unless they are connected to the present leader itself. A call in flight may fail with OUTCOME_UNKNOWN: then look whether it was done.`,
            withReason: true,
            run: async (reason) => {
              await post('v1/cluster/transfer', { node: member.node, reason });
              return `Node ${member.node} is asked to lead.`;
            },
            after,
          }),
      ),
    );
  });
  return h(
    'section',
    { class: 'panel wide' },
    h('h2', null, 'Group'),
    h('p', null, Number(leader) === 0 ? 'No leader is known' : `Node ${leader} leads`, `, term ${count(term)}, ${of(voters, 'voter')}; as node ${node} sees it.`),
    h(Table, {
      caption: 'Members of the group',
      columns: [['node', 'Member'], ['role', 'Role'], ['address', 'Address', 'minor'], ['health', 'Health'], ['lag', 'Behind', 'number'], ['acts', 'Acts', 'steer']],
      rows,
    }),
  );
}
