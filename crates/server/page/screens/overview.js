// Overview: what is wrong, which stands on top, and the flow.

import { h } from '../vendor/preact.mjs';
import { now } from '../api.js';
import { Curve } from '../curve.js';
import { bytes, count, duration, rate } from '../format.js';
import { issuesOf } from '../issues.js';
import { levels, rates } from '../rates.js';
import { ALL, FLOW, STATES, historyOf, loadOverview, pulseOf, quantile, rateOf, totalsOf } from '../tubes.js';
import { Figure, Figures } from '../ui.js';
import { IssueList } from './issues.js';
import { NoTube } from './tubes.js';

export const title = () => 'Overview · Lycosa';

/** Spans of the curves: name, seconds, and the part of the server's history; without one the page's own samples. */
const SPANS = [
  ['minute', 60, null],
  ['hour', 3600, 'fine'],
  ['day', 86400, 'coarse'],
];

export const load = (route, signal) => loadOverview(signal);

export function draw(route, { tubes, faulty = tubes.length, instance, totals = totalsOf(tubes) }) {
  const issues = issuesOf({ tubes, instance, health: route.health });
  const { span, grain } = spanOf(route);
  const oldest = totals.oldest_ready_age;
  return [
    h('h1', { class: 'hidden' }, 'Overview'),
    h(IssueList, { issues, hidden: faulty - tubes.length, isShort: true, hasActs: true, after: route.refresh }),
    h(
      Figures,
      null,
      FLOW.map((name) => h(Figure, { key: name, name, kind: name, value: rate(rateOf(totals, name)), note: 'mean of 1 min' })),
      h(Figure, { name: 'waiting calls', value: count(totals.waiting_takes) }),
      h(Figure, { name: 'oldest ready', value: duration(oldest) }),
      instance && h(Figure, { name: 'sync p99', value: duration(quantile(instance.journal_sync, 0.99)) }),
      instance && h(Figure, { name: 'turn p99', value: duration(quantile(instance.turn, 0.99)) }),
      instance && h(Figure, { name: 'memory', value: bytes(instance.memory_used), note: `of ${bytes(instance.memory_limit)}`, href: '#/instance' }),
    ),
    h(
      Figures,
      null,
      STATES.map((state) => h(Figure, { key: state, name: state, kind: state, value: count(totals.tasks[state]), href: `#/tubes?sort=-${state}` })),
    ),
    totals.tubes === 0 && h(NoTube, {}),
    h(Spans, { route, current: span }),
    h(Curves, { history: instance?.queue.history, tasks: totals.tasks, subject: ALL, span, grain }),
    instance && grain && h(Pulse, { history: instance.history, span, grain }),
    h('p', null, h('a', { href: '#/tubes' }, `All tubes: ${count(totals.tubes)}`)),
  ];
}

/** Buttons for the span of the curves. */
export function Spans({ route, current }) {
  return h(
    'div',
    { class: 'spans', role: 'group', 'aria-label': 'Span of the curves' },
    SPANS.map(([name, seconds]) =>
      h(
        'button',
        { type: 'button', key: name, 'aria-pressed': String(seconds === current), onClick: () => route.setQuery({ span: name }) },
        `Last ${name}`,
      ),
    ),
  );
}

/** What a point of a curve is, by the part of the history. */
const GRAINS = { fine: 'by 10 s', coarse: 'by 5 min' };

/**
 * The flow and the tasks of a subject; `tasks` are its present ones. Without a history of the server there is what the page
 * has seen itself.
 */
export function Curves({ history, tasks, subject, span, grain }) {
  const end = now();
  const isSeen = !grain || !history;
  const within = (points) => points.filter(([time]) => time > end - span);
  const flow = (name) => (isSeen ? rates(subject, name) : historyOf(history, grain, name));
  const level = (state) => (isSeen ? levels(subject, state) : [...historyOf(history, grain, state), [end, Number(tasks[state])]]);
  const series = (names, points) => names.map((name) => ({ name, kind: name, points: within(points(name)) }));
  const label = `Flow ${isSeen ? 'by second' : GRAINS[grain]}`;
  return [
    h(
      'div',
      { class: 'curves' },
      h(Curve, { label, span, end, show: rate, series: series(FLOW, flow) }),
      h(Curve, { label: 'Tasks', span, end, show: count, series: series(STATES, level) }),
    ),
    isSeen && h('p', { class: 'hint' }, 'These curves begin when the page was opened.'),
  ];
}

/** What the server has measured of itself: each with a scale of its own. */
function Pulse({ history, span, grain }) {
  const end = now();
  const curve = (label, names, show) =>
    h(Curve, {
      key: label,
      label: `${label} ${GRAINS[grain]}`,
      span,
      end,
      show: (value) => (value === undefined ? '–' : show(value)),
      series: names.map((name) => ({ name, kind: name, points: pulseOf(history, grain, name).filter(([time]) => time > end - span) })),
    });
  return h(
    'div',
    { class: 'curves three' },
    curve('Oldest ready task', ['oldest'], duration),
    curve('Waiting calls', ['waiting'], count),
    curve('Sync, turn: p99', ['sync', 'turn'], duration),
  );
}

/** The span that the address names. Without a history of the server the page has seen the last minutes alone. */
export function spanOf(route, hasHistory = true) {
  if (!hasHistory) return { span: SPANS[0][1], grain: SPANS[0][2] };
  const [, span, grain] = SPANS.find(([name]) => name === (route.query.get('span') ?? 'hour')) ?? SPANS[1];
  return { span, grain };
}
