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

/** What is wrong with the group, for the list of issues. */
export function issuesOfGroup(election) {
  if (!election) return [];
  const { leader, members = [], voters } = election;
  const found = [];
  const add = (id, gravity, title, means, act) => found.push({ id: `group ${id}`, gravity, title, means, act, href: '#/instance' });
  if (Number(leader) === 0) {
    add('leader', 'bad', 'The group has no leader', 'Nothing can be changed until a majority of the voters runs and reach each other.', 'Start the members that do not run.');
  }
  const lost = members.filter((member) => health(member)[1]);
  for (const member of lost) {
    add(
      `member ${member.node}`,
      'warn',
      `Member ${member.node} at ${member.address}: ${health(member)[0]}`,
      member.lag === undefined ? 'It may lack changes of the group.' : `It is ${of(member.lag, 'entry').replace('entrys', 'entries')} behind.`,
      'See that its server runs and reaches the others at cluster.listen.',
    );
  }
  const rest = members.filter((member) => member.standing === 'voter' && !health(member)[1]).length;
  if (lost.length > 0 && rest * 2 <= Number(voters) + 1) {
    add('majority', 'bad', 'One more lost member stops the group', `${rest} of ${count(voters)} voters answer.`, 'Bring a member back, or remove it and add an empty server.');
  }
  return found;
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
