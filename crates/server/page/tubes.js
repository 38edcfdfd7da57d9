// The status of the server and of its tubes, read once for all screens. docs/monitoring.md says how each number comes about.

import { may } from './access.js';
import { get, now, path } from './api.js';
import { observe, retain } from './rates.js';

export const STATES = ['ready', 'taken', 'delayed', 'buried'];
export const FLOW = ['put', 'take', 'ack'];

/** The subject of all tubes together, in rates.js. */
export const ALL = 'all';

/** Whether tasks have priorities and times. */
export const isTimed = (type) => type.endsWith('ttl');

export const subjectOf = (name) => `tube ${name}`;

const numbersOf = (tube) => ({ ...tube.tasks, ...tube.operations });

export const totalOf = ({ tasks }) => STATES.reduce((sum, state) => sum + Number(tasks[state]), 0);

function add(sum, numbers) {
  for (const [name, number] of Object.entries(numbers)) sum[name] = (sum[name] ?? 0) + Number(number);
  return sum;
}

/** All tubes that the token may see, and the instance (with its history, if `history`) if it may see that; `issues`: what is wrong. */
export async function loadStatus(signal, { history = false, issues = false } = {}) {
  const wrong = issues ? '&issues=true' : '';
  const first = await get(`v1/status?limit=200${history ? '&history=true' : ''}${wrong}`, signal);
  const tubes = [...first.tubes];
  for (let { next } = first; next !== null && next !== undefined; ) {
    const page = await get(`${path`v1/status?limit=200&after=${next}`}${wrong}`, signal);
    tubes.push(...page.tubes);
    next = page.next;
  }
  const time = now();
  for (const tube of tubes) observe(subjectOf(tube.name), time, numbersOf(tube));
  observe(ALL, time, tubes.map(numbersOf).reduce(add, {}));
  retain('tube ', new Set(tubes.map(({ name }) => name)));
  return { tubes, instance: first.instance ?? null };
}

/** The sums over all tubes and the tubes with faults: in one answer, which costs the server little, if the token is for every tube. */
export async function loadOverview(signal) {
  if (!may('viewer')) return loadStatus(signal, { issues: true });
  const seen = await get('v1/overview', signal);
  observe(ALL, now(), numbersOf(seen.instance.queue));
  return { ...seen, totals: { ...seen.instance.queue, waiting_takes: seen.waiting_takes, oldest_ready_age: seen.oldest_ready_age } };
}

/** Sums over tubes, as an overview tells them. */
export function totalsOf(tubes) {
  const sum = (number) => tubes.reduce((total, tube) => total + Number(number(tube) ?? 0), 0);
  const ages = tubes.flatMap(({ oldest_ready_age: age }) => age ?? []);
  return {
    tubes: tubes.length,
    tasks: Object.fromEntries(STATES.map((state) => [state, sum(({ tasks }) => tasks[state])])),
    rates: Object.fromEntries(FLOW.map((name) => [`${name}s`, [sum((tube) => rateOf(tube, name))]])),
    waiting_takes: sum(({ waiting_takes: waiting }) => waiting),
    oldest_ready_age: ages.length > 0 ? Math.max(...ages) : undefined,
  };
}

/** One tube, with its history if the server keeps one. */
export async function loadTube(name, signal) {
  const tube = await get(path`v1/tubes/${name}/status?history=true`, signal);
  observe(subjectOf(name), now(), numbersOf(tube));
  return tube;
}

/** Operations a second over the last minute, as the server measures them. */
export function rateOf(status, flow) {
  return status?.rates?.[`${flow}s`]?.[0];
}

/** The bound of a histogram's bucket in seconds; the last bucket has none, and its number is shown as the bound before it. */
function bound(bucket) {
  return ((bucket % 2 === 0 ? 2 : 3) * 2 ** (3 + Math.floor(bucket / 2))) / 1e6;
}

/** Buckets of a histogram: [bound in seconds, number]. */
export function buckets(histogram) {
  const flat = histogram?.buckets ?? [];
  return flat.flatMap((bucket, at) => (at % 2 === 0 ? [[bound(Number(bucket)), Number(flat[at + 1])]] : []));
}

/** The bound below which this part of all durations lies, in seconds; undefined if none was counted. */
export function quantile(histogram, part) {
  const counted = buckets(histogram);
  const wanted = counted.reduce((sum, [, number]) => sum + number, 0) * part;
  let below = 0;
  for (const [seconds, number] of counted) {
    below += number;
    if (below >= wanted) return seconds;
  }
  return undefined;
}

const PERIODS = { fine: 10, coarse: 300 };
/** Places of the states and of the flow in a point of a history. */
const PLACES = [...STATES, ...FLOW];

/** Places of the numbers in a point of the instance's own history, in seconds but for the calls. */
const PULSE = ['waiting', 'oldest', 'turn', 'sync'];

/** Points [seconds, value or null] of the instance's own history. */
export function pulseOf(history, grain, name) {
  const period = PERIODS[grain];
  const points = history?.[grain] ?? [];
  const until = Math.floor(Number(history?.until ?? 0) / period) * period;
  return points.map((point, at) => [until - (points.length - 1 - at) * period, point?.[PULSE.indexOf(name)] ?? null]);
}

/** Points [seconds, value] of a history: tasks of a state, or operations a second. */
export function historyOf(history, grain, name) {
  const period = PERIODS[grain];
  const points = history?.[grain] ?? [];
  const place = PLACES.indexOf(name);
  const until = Math.floor(Number(history?.until ?? 0) / period) * period;
  return points.map((point, at) => {
    const time = until - (points.length - 1 - at) * period;
    return [time, FLOW.includes(name) ? point[place] / period : point[place]];
  });
}
