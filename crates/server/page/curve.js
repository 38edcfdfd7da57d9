// Curves and spark-lines as SVG.

import { h } from './vendor/preact.mjs';
import { duration } from './format.js';

const WIDTH = 600;

/** The next 1, 2 or 5 times a power of ten. */
function roundUp(value, least) {
  if (value <= 0) return least;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((step) => step * power >= value) ?? 10) * power;
}

function line(points, xOf, yOf) {
  let text = '';
  let isDown = false;
  for (const [time, value] of points) {
    if (value === null) isDown = false;
    else {
      // A point without neighbors is a dot.
      text += `${isDown ? 'L' : 'M'}${xOf(time).toFixed(1)} ${yOf(value).toFixed(1)}${isDown ? '' : 'h0'}`;
      isDown = true;
    }
  }
  return text;
}

/**
 * Several series over one span of time. `series`: name, kind (a class of its color and dashes) and points
 * [seconds, value or null]; null leaves a gap. `show` writes a value.
 */
export function Curve({ label, series, span, end, show = String, height = 120 }) {
  const values = series.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
  // Without any value a scale of one, so that nothing lies on top.
  const top = roundUp(Math.max(0, ...values), 1);
  const begin = end - span;
  const xOf = (time) => ((time - begin) / span) * WIDTH;
  const yOf = (value) => height - 2 - (value / top) * (height - 4);
  const last = ({ points }) => points.findLast(([, value]) => value !== null)?.[1];
  const legend = series.map((one) =>
    h('span', { class: `key ${one.kind}`, key: one.name }, h('i'), `${one.name} `, h('b', null, show(last(one)))),
  );
  const text = series.map((one) => `${one.name} ${show(last(one))}`).join(', ');
  return h(
    'figure',
    { class: 'curve' },
    h('figcaption', null, h('span', { class: 'title' }, label), legend),
    h(
      'svg',
      { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label}: ${text}` },
      [0.5, 1].map((part) => h('path', { key: part, class: 'grid', d: `M0 ${yOf(top * part)}H${WIDTH}` })),
      h('path', { class: 'grid', d: `M0 ${height - 1}H${WIDTH}` }),
      series.map((one) => h('path', { key: one.name, class: `line ${one.kind}`, d: line(one.points, xOf, yOf) })),
    ),
    h('div', { class: 'scale' }, h('span', null, `${duration(span)} ago`), h('span', null, `top ${show(top)}`), h('span', null, 'now')),
  );
}

/** A small curve without text; `label` says what it shows. */
export function Spark({ points, label }) {
  const top = Math.max(1, ...points.map(([, value]) => value ?? 0));
  const first = points[0]?.[0] ?? 0;
  const span = Math.max(1, (points.at(-1)?.[0] ?? 1) - first);
  const d = line(points, (time) => ((time - first) / span) * 80, (value) => 17 - (value / top) * 16);
  return h('svg', { class: 'spark', viewBox: '0 0 80 18', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, h('path', { d }));
}

/** A histogram: bars of [name, number]. */
export function Bars({ label, bars, show = String }) {
  const top = Math.max(1, ...bars.map(([, number]) => number));
  return h(
    'table',
    { class: 'bars' },
    h('caption', null, label),
    h(
      'tbody',
      null,
      bars.map(([name, number]) =>
        h(
          'tr',
          { key: name },
          h('th', { scope: 'row' }, name),
          h('td', null, h('meter', { min: 0, max: top, value: number, 'aria-label': `${name}: ${show(number)}` })),
          h('td', { class: 'number' }, show(number)),
        ),
      ),
    ),
  );
}
