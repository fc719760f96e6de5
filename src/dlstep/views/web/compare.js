/** Comparison of two runs. Pure functions. */
import { cellAt, clamped, extent, secondsAt } from "./state.js";

const same = (one, two) => (one?.[1] ?? null) === (two?.[1] ?? null);

/** The last moment of each of two runs up to `index`. */
function ends(one, two, index) {
  return [clamped(one, index), clamped(two, index)];
}

/** Positions whose tokens differ at a moment. A run that has ended stays at its last moment. */
export function differing(one, two, index = Infinity) {
  const [first, second] = ends(one, two, index);
  const found = new Set();
  const most = Math.max(extent(one, first), extent(two, second));
  for (let position = 0; position < most; position += 1) {
    if (!same(cellAt(one, first, position), cellAt(two, second, position))) found.add(position);
  }
  return found;
}

/** The first position at which the ends of two runs differ, with both cells and the moment from which they differ; null if none does. */
export function firstDifference(one, two) {
  const [position] = differing(one, two);
  if (position === undefined) return null;
  const [last, other] = ends(one, two, Infinity);
  return { position, one: cellAt(one, last, position), two: cellAt(two, other, position), index: differsFrom(one, two, position) };
}

/** The first moment after which the two runs always have different tokens at a position. */
function differsFrom(one, two, position) {
  let index = Math.max(one.moments.length, two.moments.length) - 1;
  const differs = (k) => !same(cellAt(one, clamped(one, k), position), cellAt(two, clamped(two, k), position));
  while (index > 0 && differs(index - 1)) index -= 1;
  return index;
}

/** Whether both runs ended with the same settled tokens; null until both have ended. */
export function sameAnswer(one, two) {
  if (!one.finish || !two.finish) return null;
  return one.tokens.length === two.tokens.length && one.tokens.every((token, place) => same(token, two.tokens[place]));
}

/** The figures of a run at a moment. */
export function figures(run, index) {
  const moment = run.moments[clamped(run, index)];
  if (!moment) return { forwards: 0, tokens: 0, rate: 0, seconds: 0 };
  const rate = moment.nfe ? moment.settled / moment.nfe : 0;
  return { forwards: moment.nfe, tokens: moment.settled, rate, seconds: secondsAt(run, clamped(run, index)) };
}

/** Options of a run that differ from those of another, as pairs of name and value. */
export function changedOptions(head, other) {
  if (!head) return [];
  const was = other?.options ?? {};
  const pairs = Object.entries(head.options ?? {}).filter(([name, value]) => JSON.stringify(was[name]) !== JSON.stringify(value));
  if (other && head.seed !== other.seed) pairs.push(["seed", head.seed]);
  return pairs;
}
