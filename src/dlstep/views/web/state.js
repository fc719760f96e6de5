/**
 * A run as a value, and the function that returns its next value: `reduce(run, frame)`. Pure: no DOM, no clock.
 *
 * A run is one answer. Its `tokens` are the settled ones, in order: [position, id, probability, text]. A moment is the state
 * after one frame: the number of settled tokens, and the cells of the window after them. A run at any moment is therefore a
 * prefix of its tokens and the cells of that moment, so going back in time costs nothing. `answer` is the index of the answer
 * in its request.
 */

/** A run without frames. */
export const EMPTY = Object.freeze({
  id: "", head: null, tokens: Object.freeze([]), moments: Object.freeze([]), width: 0, text: "",
  finish: null, error: null, parent: null, first: 0, earlier: 0, answer: 0,
});

/** The run after one more frame, which came with `text`. */
export function reduce(run, frame, text = "") {
  const before = run.moments.at(-1);
  const next = { ...run, text: run.text + text };
  if (frame.head) {
    next.head = frame.head;
    next.id = frame.head.request;
  }
  const kept = run.tokens.slice(0, frame.settled - frame.tokens.length);
  next.tokens = frame.tokens.length || kept.length < run.tokens.length ? kept.concat(frame.tokens) : run.tokens;
  const place = placeOf(run, frame.seq);
  const cells = shared(before, frame.cells);
  const moment = {
    seq: frame.seq, step: frame.step, nfe: frame.nfe, settled: frame.settled, cells, plan: frame.plan ?? null,
    rivals: frame.rivals ?? {}, allowed: frame.allowed ?? {}, seconds: frame.seconds ?? null,
  };
  next.moments = run.moments.slice(0, place).concat([moment]);
  next.width = Math.max(run.width, frame.settled + cells.length);
  if (frame.finish_reason) {
    next.finish = frame.finish_reason;
    next.error = frame.error ?? null;
  }
  return next;
}

/** The index of the frame `seq` among the moments, or the index at which it belongs. */
function placeOf(run, seq) {
  let place = run.moments.length;
  while (place > run.first && run.moments[place - 1].seq >= seq) place -= 1;
  return place;
}

/** The cells, with unchanged cells as the same objects as before, so that long runs need little memory. */
function shared(before, cells) {
  if (!before || !before.cells.length || !cells.length) return cells;
  const shift = cells[0][0] - before.cells[0][0];
  return cells.map((cell, index) => {
    const old = before.cells[index + shift];
    const same = old && old[0] === cell[0] && old[1] === cell[1] && old[2] === cell[2] && old[3] === cell[3];
    return same ? old : cell;
  });
}

/** The beginning of a fork: `parent` up to and including its moment `index`, which the first frame of the fork replaces. */
export function branch(parent, index) {
  const moments = parent.moments.slice(0, index + 1);
  const settled = moments.length ? moments.at(-1).settled : 0;
  const width = moments.reduce((most, each) => Math.max(most, each.settled + each.cells.length), 0);
  const earlier = secondsAt(parent, moments.length - 1) ?? 0;
  const origin = { id: parent.id, seq: moments.length ? moments.at(-1).seq : 0 };
  return { ...EMPTY, moments, tokens: parent.tokens.slice(0, settled), width, parent: origin, first: index, earlier };
}

/** Seconds of a run up to a moment, including its parents before the fork; null if they were not measured. */
export function secondsAt(run, index) {
  const seconds = run.moments[index]?.seconds ?? null;
  return seconds === null ? null : seconds + (index >= run.first ? run.earlier : 0);
}

/** A run that failed, with a readable reason. */
export function failed(run, reason) {
  return { ...run, finish: run.finish ?? "error", error: reason };
}

/** Whether a run failed or was rejected. */
export function broken(run) {
  return run.finish === "error" || run.finish === "rejected";
}

/** A position at a moment: [position, id or null, probability, text or null], or null outside the window. */
export function cellAt(run, index, position) {
  const moment = run.moments[index];
  if (!moment) return null;
  if (position < moment.settled) return run.tokens[position] ?? null;
  return moment.cells[position - moment.settled] ?? null;
}

/** The number of ids that a masked position may hold at a moment; null without a constraint, and if the position is not masked. */
export function allowedAt(run, index, position) {
  const count = run.moments[index]?.allowed?.[String(position)];
  return Number.isSafeInteger(count) ? count : null;
}

/** The number of positions at a moment. */
export function extent(run, index) {
  const moment = run.moments[index];
  return moment ? moment.settled + moment.cells.length : 0;
}

/** The index of the last moment of a run up to `index`; -1 if the run has none. */
export function clamped(run, index) {
  return Math.min(index, run.moments.length - 1);
}

/** The frames of a run without the frames of its parent; the first one has the head. */
export function framesOf(run) {
  return run.moments.slice(run.first).map((moment, offset) => {
    const place = run.first + offset;
    const known = offset ? run.moments[place - 1].settled : 0;
    const frame = { index: run.answer, ...moment, tokens: run.tokens.slice(known, moment.settled) };
    if (!offset && run.head) frame.head = run.head;
    if (run.finish && place === run.moments.length - 1) {
      frame.finish_reason = run.finish;
      frame.tokens_per_forward = moment.nfe ? Number((moment.settled / moment.nfe).toFixed(4)) : 0;
      if (run.error) frame.error = run.error;
    }
    return frame;
  });
}

/** The run after a list of frames; `start` is EMPTY or a result of `branch`. */
export function fold(frames, start = EMPTY) {
  return frames.reduce((run, frame) => reduce(run, frame), start);
}

/** The settled text of the answer at a moment. */
export function answerOf(run, index = run.moments.length - 1) {
  const moment = run.moments[index];
  return run.tokens.slice(0, moment ? moment.settled : 0).map((token) => token[3] ?? "").join("");
}
