// Curves of numbers that the page has seen itself. A counter that falls (a restart) begins anew.

/** Samples of each subject: seconds, and the numbers by name. */
const subjects = new Map();

/** Samples of a subject that are kept. */
const KEPT = 120;

/** Seconds without a sample that leave a gap in a curve. */
const GAP = 10;

/** Adds what was seen at `time`. */
export function observe(subject, time, numbers) {
  const samples = subjects.get(subject) ?? [];
  subjects.set(subject, samples);
  if (samples.length && time <= samples.at(-1).time) return;
  samples.push({ time, numbers });
  if (samples.length > KEPT) samples.shift();
}

/** Drops subjects that are not in the set any more. */
export function retain(prefix, names) {
  for (const subject of subjects.keys()) {
    if (subject.startsWith(prefix) && !names.has(subject.slice(prefix.length))) subjects.delete(subject);
  }
}

/** A number over time: [seconds, value]. */
export function levels(subject, name) {
  return (subjects.get(subject) ?? []).map(({ time, numbers }) => [time, Number(numbers[name] ?? 0)]);
}

/** A counter's rate over time. A pause of the page leaves a gap. */
export function rates(subject, name) {
  const samples = subjects.get(subject) ?? [];
  return samples.slice(1).map(({ time, numbers }, at) => {
    const before = samples[at];
    const grown = Number(numbers[name] ?? 0) - Number(before.numbers[name] ?? 0);
    const took = time - before.time;
    return [time, grown < 0 || took > GAP ? null : grown / took];
  });
}
