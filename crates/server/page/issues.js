// What is wrong: each finding with its meaning and the act against it. Findings follow from what the server tells.

import { bytes, count, duration, of } from './format.js';
import { rateOf, totalOf } from './tubes.js';
import { issuesOfGroup } from './group.js';
import { to } from './ui.js';

/** Seconds that a ready task may wait where no call waits for it. */
const PATIENCE = 60;
/** Seconds that a replica with rows to get may be silent. */
const LATE = 10;
/** Seconds that a task may wait or be taken before that is worth a look. */
const LONG = 600;

/** Seconds of a sync, at p99 over a minute, from which the disk is slow, and from which it holds up all clients. */
const SLOW_SYNC = 0.1;
const STUCK_SYNC = 1;
/** Seconds by which clocks may differ. */
const APART = 1;

/** How grave a finding is; graver ones stand first. */
const GRAVITY = ['bad', 'warn', 'note'];

function ofServer(health) {
  return (health?.reasons ?? []).map(({ reason, detail }) => ({
    id: `server ${reason}`,
    gravity: reason === 'read_only' ? 'note' : 'bad',
    title: reason === 'read_only' ? 'This server takes no writes' : `The server is not ready: ${reason}`,
    means: detail,
    act: reason === 'read_only' ? 'Open the page of its master to change anything.' : 'See the log of the server.',
  }));
}

/** `info` is what /v1/info tells. */
function ofInstance(info) {
  if (!info) return [];
  const found = issuesOfGroup(info.election);
  const { memory, checkpoint, expiration, replication } = info;
  if (memory && Number(memory.data) + Number(memory.index) > 0.9 * Number(memory.limit)) {
    found.push({
      id: 'memory',
      gravity: 'bad',
      title: 'Memory is nearly full',
      means: 'A put is refused when it is.',
      act: 'Let workers finish tasks, delete buried ones, or raise memory_limit.',
      href: '#/instance',
    });
  }
  if (checkpoint?.failure) {
    found.push({
      id: 'checkpoint',
      gravity: 'bad',
      title: 'Checkpoints fail',
      means: String(checkpoint.failure),
      act: 'The journal grows until one succeeds: look at the disk.',
      href: '#/instance',
    });
  }
  if (Number(expiration?.failing ?? 0) > 0) {
    found.push({
      id: 'expiration',
      gravity: 'warn',
      title: of(expiration.failing, 'failing expiration task'),
      means: 'Tuples that should expire stay.',
      act: 'The log of the server says why.',
      href: '#/instance',
    });
  }
  for (const [id, peer] of Object.entries(replication ?? {})) {
    const { upstream, downstream } = peer ?? {};
    const isStopped = downstream?.status === 'stopped';
    if (isStopped || (Number(downstream?.behind ?? 0) > 0 && downstream.idle > LATE)) {
      found.push({
        id: `replica ${id}`,
        gravity: 'warn',
        title: `Replica ${id} ${isStopped ? 'is not connected' : `has been silent for ${duration(downstream.idle)}`}`,
        means: downstream.message ?? `It is ${of(downstream.behind ?? 0, 'row')} behind: a promotion now would lose them.`,
        act: 'See its log, and the network between.',
        href: '#/instance',
      });
    }
    if (!upstream || upstream.status === 'follow' || upstream.status === 'sync') continue;
    found.push({
      id: `replication ${id}`,
      gravity: 'bad',
      title: `Replication from ${peer.uuid ?? id} is ${upstream.status}`,
      means: upstream.message ?? 'This server does not get the changes of its master.',
      act: 'See docs/replication.md.',
      href: '#/instance',
    });
  }
  return found;
}

/** Disk and clocks; `instance` is what the status tells about the server. */
function ofMachine(instance) {
  if (!instance) return [];
  const found = [];
  const { disk_short: short, recent_sync: sync, clock_ahead: ahead, leader_ahead: leaderAhead } = instance;
  if (short) {
    found.push({
      id: 'disk',
      gravity: 'bad',
      title: `The disk is short: ${bytes(short.free)} free`,
      means: short.exhausted
        ? 'Tasks can neither be put nor finished: the rest is for a snapshot.'
        : `Puts are refused below disk_reserve (${bytes(short.reserve)}). Tasks can still be taken and finished.`,
      act: 'Free space on the disk of data_dir. Finished and deleted tasks give theirs back with a checkpoint.',
      href: '#/instance',
      checkpoints: true,
      command: 'lycosa checkpoint',
    });
  }
  if (sync >= SLOW_SYNC) {
    found.push({
      id: 'sync',
      gravity: sync >= STUCK_SYNC ? 'bad' : 'warn',
      title: `The disk is slow: a sync takes ${duration(sync)}`,
      means: 'Replies to changes wait for it (p99 of the last minute).',
      act: 'See what else writes to the disk of data_dir, or move data_dir to a faster one.',
      href: '#/instance',
      command: 'iostat -x 1',
    });
  }
  if (Math.abs(ahead ?? 0) >= APART) {
    found.push({
      id: 'clock',
      gravity: 'warn',
      title: `The system's clock is ${duration(Math.abs(ahead))} ${ahead > 0 ? 'ahead of' : 'behind'} the server's time`,
      means: 'It was set, or the machine slept. Deadlines do not jump: the server follows by at most 6 minutes an hour.',
      act: 'See that the time is synchronized. A restart takes the time of the system at once.',
      href: '#/log',
      link: 'Log',
      command: 'timedatectl',
    });
  }
  if (Math.abs(leaderAhead ?? 0) >= APART) {
    found.push({
      id: 'clocks',
      gravity: 'warn',
      title: `The leader's time is ${duration(Math.abs(leaderAhead))} ${leaderAhead > 0 ? 'ahead of' : 'behind'} this member's`,
      means: 'Deadlines go by the time of the leader. A new leader goes on with it.',
      act: 'Synchronize the clocks of the members.',
      href: '#/instance',
      command: 'timedatectl',
    });
  }
  return found;
}

function ofTube(tube) {
  const { name, tasks, oldest_ready_age: age, oldest_taken_age: held, waiting_takes: waiting } = tube;
  const found = [];
  // A command for a shell: only for names that need no quotation.
  const command = (text) => (/^[\w][\w.-]*$/.test(name) ? text : undefined);
  /** @type {(id: string, gravity: string, title: string, means: string, act: string, more?: Record<string, any>) => unknown} */
  const add = (id, gravity, title, means, act, { href = to`#/tubes/${name}`, ...more } = {}) =>
    found.push({ id: `${id} ${name}`, gravity, tube: name, title, means, act, href, link: 'Tube', ...more });
  if (tube.paused) {
    add('paused', 'note', 'Paused', 'The tube hands out no task until it is resumed.', 'Resume it once the reason is gone.', { resumes: name, command: command(`lycosa resume ${name}`) });
  } else if (Number(tasks.ready) > 0 && age > PATIENCE && waiting === 0 && !rateOf(tube, 'take')) {
    add(
      'left',
      'bad',
      `${of(tasks.ready, 'ready task')} and no worker`,
      `The oldest has waited for ${duration(age)}, no call waits for a task, and the last minutes saw no take.`,
      'Start workers.',
      { command: command(`lycosa work ${name} -- ./handler`) },
    );
  } else if (Number(tasks.ready) > 0 && age > LONG) {
    add('late', 'warn', `The oldest ready task waits for ${duration(age)}`, 'Takes do not keep up with puts, or tasks of other priorities come first.', 'Add workers.');
  }
  if (held > LONG) {
    const blocks = Number(tube.busy_keys ?? 0) > 0 && Number(tasks.ready) > 0;
    add(
      'held',
      blocks ? 'warn' : 'note',
      `A task has been taken for ${duration(held)}`,
      blocks ? 'Its sub-queue hands out no other task before it ends.' : 'Its worker may be stuck or lost.',
      'See who holds it, and release it if the worker is lost.',
      { href: to`#/tubes/${name}/tasks?state=taken`, link: 'Taken tasks', command: command(`lycosa find ${name} --state taken`) },
    );
  }
  if (Number(tasks.buried) > 0) {
    add(
      'buried',
      'warn',
      of(tasks.buried, 'buried task'),
      'Workers gave these tasks up. They wait until a kick, or until their ttl is over.',
      'Look at their last errors, mend the cause, then kick or delete them.',
      { href: to`#/tubes/${name}/tasks?state=buried`, link: 'Buried tasks', command: command(`lycosa find ${name} --state buried`) },
    );
  }
  if (tube.capacity && totalOf(tube) >= Number(tube.capacity)) {
    add('full', 'warn', `Full: ${count(tube.capacity)} tasks`, 'A put waits for a free place, up to its timeout.', 'Add workers.');
  }
  return found;
}

/**
 * Everything that is wrong, the gravest first.
 * @param {{tubes: any[], health?: any, info?: any, instance?: any}} seen
 */
export function findIssues({ tubes, health, info, instance }) {
  const found = [...ofServer(health), ...ofInstance(info), ...ofMachine(instance), ...tubes.flatMap(ofTube)];
  return found.sort((one, other) => GRAVITY.indexOf(one.gravity) - GRAVITY.indexOf(other.gravity));
}
