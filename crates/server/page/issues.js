// What is wrong, as the server says: its status has the issues of the server and of each tube. The page adds where to go and
// what can be done here.

import { to } from './ui.js';

/** The gravest first. */
const GRAVITY = ['bad', 'warn', 'note'];

/** Rules that have a screen of their own: its address, and the words of the link. */
const OF_TUBE = {
  blocked: (tube) => [to`#/tubes/${tube}/tasks?state=taken`, 'Taken tasks'],
  held: (tube) => [to`#/tubes/${tube}/tasks?state=taken`, 'Taken tasks'],
  buried: (tube) => [to`#/tubes/${tube}/tasks?state=buried`, 'Buried tasks'],
};
const OF_SERVER = { clock: ['#/log', 'Log'], programs: ['#/log', 'Log'], failed: ['#/log', 'Log'] };

function place({ kind, tube }) {
  if (tube === undefined) return OF_SERVER[kind] ?? ['#/instance', 'Instance'];
  return OF_TUBE[kind]?.(tube) ?? [to`#/tubes/${tube}`, 'Tube'];
}

/** A token that sees no numbers of the server learns from /health that it is not ready. */
function ofHealth(health) {
  return (health?.reasons ?? []).map(({ reason, detail }) => ({
    kind: reason,
    gravity: reason === 'read_only' ? 'note' : 'bad',
    title: reason === 'read_only' ? 'This server takes no writes' : `The server is not ready: ${reason}`,
    means: detail,
    act: '',
  }));
}

/**
 * Everything that is wrong with what a status tells of, the gravest first.
 * @param {{tubes: any[], instance?: any, health?: any}} seen
 */
export function issuesOf({ tubes, instance, health }) {
  const found = [
    ...(instance?.issues ?? ofHealth(health)),
    ...tubes.flatMap(({ name, issues = [] }) => issues.map((issue) => ({ ...issue, tube: name }))),
  ];
  const placed = found.map((issue) => {
    const [href, link] = place(issue);
    return { ...issue, id: [issue.kind, issue.subject, issue.tube].join(' '), href, link };
  });
  return placed.sort((one, other) => GRAVITY.indexOf(one.gravity) - GRAVITY.indexOf(other.gravity));
}
