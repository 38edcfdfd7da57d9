// Numbers, times and texts as people read them.

import { now } from './api.js';

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const rough = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });

/** An exact whole number. */
export function count(number) {
  return number === undefined || number === null ? '–' : whole.format(number);
}

/** Operations a second. */
export function rate(number) {
  if (number === undefined || number === null || Number.isNaN(number)) return '–';
  if (number > 0 && number < 0.01) return '< 0.01/s';
  return `${number >= 100 ? whole.format(number) : rough.format(number)}/s`;
}

export function bytes(number) {
  if (number === undefined || number === null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let rest = Number(number);
  let unit = 0;
  for (; rest >= 1024 && unit < units.length - 1; unit += 1) rest /= 1024;
  return `${unit === 0 ? whole.format(rest) : short.format(rest)} ${units[unit]}`;
}

/** @type {[number, string, number, string][]} */
const STEPS = [
  [86400, 'd', 3600, 'h'],
  [3600, 'h', 60, 'min'],
  [60, 'min', 1, 's'],
];

/** A duration in seconds: its two largest units. */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return '–';
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return `${short.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${short.format(seconds * 1000)} ms`;
  if (seconds < 10) return `${short.format(seconds)} s`;
  // Longer than a task can live: the queue's word for "without an end".
  if (seconds > 50 * 365 * 86400) return 'without an end';
  for (const [size, unit, part, partUnit] of STEPS) {
    if (seconds < size) continue;
    const rest = Math.floor((seconds % size) / part);
    return `${whole.format(Math.floor(seconds / size))} ${unit}${rest ? ` ${rest} ${partUnit}` : ''}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** A moment relative to the server's clock. */
export function relative(moment) {
  const ahead = moment - now();
  if (ahead > 50 * 365 * 86400) return 'never';
  if (Math.abs(ahead) < 1) return 'now';
  return ahead > 0 ? `in ${duration(Math.floor(ahead))}` : `${duration(Math.floor(-ahead))} ago`;
}

let isUtc = sessionStorage.getItem('lycosa.clock') !== 'local';

export const clock = {
  get isUtc() {
    return isUtc;
  },
  toggle() {
    isUtc = !isUtc;
    sessionStorage.setItem('lycosa.clock', isUtc ? 'utc' : 'local');
  },
};

/** A moment as a date, in UTC or local time, to the millisecond. */
export function absolute(moment) {
  const date = new Date(moment * 1000);
  if (Number.isNaN(date.getTime())) return String(moment);
  if (isUtc) return `${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`;
  const offset = date.getTimezoneOffset();
  const local = new Date(date.getTime() - offset * 60000).toISOString().replace('T', ' ').replace('Z', '');
  const hours = String(Math.floor(Math.abs(offset) / 60)).padStart(2, '0');
  return `${local} ${offset > 0 ? '-' : '+'}${hours}:${String(Math.abs(offset) % 60).padStart(2, '0')}`;
}

/** Control characters but line ends and tabs, and the characters that turn the direction of text or have no width. */
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const UNBROKEN = /[\t\n]/g;

const spell = (found) => `⟨U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

/** Text of others with every invisible character spelled out, as ⟨U+202E⟩. Line ends and tabs stay. */
export function visible(text) {
  return String(text).replace(INVISIBLE, spell);
}

/** The same in one line. */
export function visibleLine(text) {
  return visible(text).replace(UNBROKEN, spell);
}

/** "1 task", "2 tasks". */
export function of(number, noun) {
  return `${count(number)} ${noun}${number == 1 ? '' : 's'}`;
}

/** Characters of an error that name its kind. */
const LINE = 120;

/** The first line of an error, cut: what tasks that failed alike share. */
export function firstLine(error) {
  return [...error.split('\n', 1)[0]].slice(0, LINE).join('');
}
