/** The runs of the page, which of them are displayed, and the current moment. No DOM: `changed` is called after every change. */
import { EMPTY, branch, clamped, failed, reduce } from "./state.js";

const MOST_RUNS = 64; // as many as the server keeps by default
export const MOST_SHOWN = 4;

export class Store {
  constructor(changed) {
    this.changed = changed;
    this.entries = new Map(); // key -> { key, name, run, parent, index, live, label }
    this.made = 0;
    this.shown = [];
    this.focus = null;
    this.at = 0;
    this.following = true;
    this.selected = null;
  }

  /** A new entry: a root, or a fork of the entry `parent` at its moment `index`. */
  open({ parent = null, index = 0, run = EMPTY, label = "" } = {}) {
    const key = `run-${(this.made += 1)}`;
    const start = parent ? branch(this.entries.get(parent).run, index) : run;
    const entry = { key, name: nameOf(this.made), run: start, parent, index, live: null, label };
    this.entries.set(key, entry);
    this.drop();
    return entry;
  }

  /** Remove the oldest roots, with their forks, if there are too many. */
  drop() {
    for (const [key, entry] of this.entries) {
      if (this.entries.size <= MOST_RUNS) return;
      if (!entry.live && !this.shown.includes(key)) this.remove(key);
    }
  }

  remove(key) {
    for (const entry of [...this.entries.values()]) if (entry.parent === key) this.remove(entry.key);
    this.entries.get(key)?.live?.abort();
    this.entries.delete(key);
    this.shown = this.shown.filter((each) => each !== key);
    if (this.focus === key) this.focus = this.shown[0] ?? null;
    this.changed();
  }

  /** Add a frame to an entry. */
  take(key, frame, text) {
    const entry = this.entries.get(key);
    if (!entry) return;
    entry.run = reduce(entry.run, frame, text);
    if (this.following) this.at = this.last;
    this.changed();
  }

  fail(key, reason) {
    const entry = this.entries.get(key);
    if (!entry) return;
    entry.run = failed(entry.run, reason);
    this.changed();
  }

  /** Display these entries side by side; the last one gets the focus unless `focus` is given. */
  show(keys, focus = keys.at(-1)) {
    this.shown = keys.filter((key) => this.entries.has(key)).slice(-MOST_SHOWN);
    this.focus = this.shown.includes(focus) ? focus : (this.shown.at(-1) ?? null);
    this.at = Math.min(this.at, this.last);
    this.changed();
  }

  go(index, following) {
    this.at = Math.max(0, Math.min(index, this.last));
    this.following = following;
    this.changed();
  }

  select(position, key = this.focus) {
    this.selected = position;
    this.focus = key;
    this.changed();
  }

  /** The displayed entries. */
  get lanes() {
    return this.shown.map((key) => this.entries.get(key));
  }

  get focused() {
    return this.entries.get(this.focus) ?? null;
  }

  /** The index of the last moment of all displayed entries. */
  get last() {
    return Math.max(0, ...this.lanes.map((entry) => entry.run.moments.length - 1));
  }

  /** The index of the current moment of an entry. */
  momentOf(entry) {
    return clamped(entry.run, this.at);
  }

  /** The ancestors of an entry, the oldest first, and the entry itself. */
  lineage(key) {
    const entry = this.entries.get(key);
    return entry ? [...(entry.parent ? this.lineage(entry.parent) : []), entry] : [];
  }

  /** Remove all answers of a request, with their forks. */
  forget(request) {
    for (const entry of [...this.entries.values()]) if (entry.run.head?.request === request) this.remove(entry.key);
  }
}

/** A, B, ..., Z, A2, B2, ... */
export function nameOf(number) {
  const letter = String.fromCharCode(65 + ((number - 1) % 26));
  return number <= 26 ? letter : `${letter}${Math.floor((number - 1) / 26) + 1}`;
}
