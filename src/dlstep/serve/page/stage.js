/** The middle of the page: the runs that are looked at, side by side, with one moment for all of them. */
import { Answer } from "./text.js";
import { StepMap } from "./map.js";
import { changedOptions, differing, figures, firstDifference, sameAnswer } from "./compare.js";
import { cellAt } from "./state.js";
import { chance, figure, short, shown, word } from "./shown.js";
import { fill, make, mark, say, the } from "./dom.js";

// Laying out a long text takes longer than a frame of the screen: it is then drawn less often than the map.
const LONG = 300; // positions
const PAUSE = 120; // milliseconds

const FIGURES = ["forwards", "tokens", "per forward", "seconds"];

/** One run: name, figures, text, map. */
class Lane {
  constructor(entry, act) {
    this.answer = new Answer(entry.name, (position) => act.select(position, entry.key), act.step);
    this.canvas = make("canvas", { class: "map", role: "img" });
    this.map = new StepMap(this.canvas, (index, position) => index !== null && act.pick(entry.key, index, position), (index, position) => this.point(index, position));
    this.numbers = FIGURES.map((name) => make("dd", { title: name }));
    this.readout = make("p", { class: "readout soft" });
    this.title = make("h3", {});
    this.state = make("span", { class: "state" });
    this.stop = make("button", { type: "button", class: "quiet", text: "Stop", on: { click: () => act.stop(entry.key) } });
    this.close = make("button", { type: "button", class: "quiet", "aria-label": `Hide run ${entry.name}`, text: "✕", on: { click: () => act.hide(entry.key) } });
    const badge = make("span", { class: `badge ${badgeOf(entry)}`, text: entry.name });
    const head = make("header", {}, badge, this.title, this.state, this.stop, this.close);
    const numbers = make("dl", { class: "figures" }, ...FIGURES.map((name, place) => make("div", {}, make("dt", { text: name }), this.numbers[place])));
    this.element = make("article", { class: "lane", "aria-label": `Run ${entry.name}` }, head, numbers, this.answer.list, make("div", { class: "canvas" }, this.canvas), this.readout);
    this.later = act.later;
    this.told = -Infinity; // when the text was drawn
    this.waits = null;
    this.element.addEventListener("focusin", () => act.focus(entry.key));
  }

  point(index, position) {
    const cell = index === null ? null : cellAt(this.run, index, position);
    if (index === null) return say(this.readout, "\u00a0");
    const told = cell ? `${short(word(cell[1] === null ? null : cell[3]), 60)}${cell[1] === null ? "" : `, probability ${chance(cell[2])}`}` : "not open";
    return say(this.readout, `frame ${index}, position ${position}: ${told}`);
  }

  /** Draw the text, a long one after a pause. */
  text(run, index, marks) {
    const wait = run.width > LONG ? PAUSE - (performance.now() - this.told) : 0;
    if (wait > 0) {
      this.waits ??= setTimeout(() => {
        this.waits = null;
        this.later();
      }, wait);
      return;
    }
    this.told = performance.now();
    this.answer.draw(run, index, marks);
  }

  draw(entry, store, shared) {
    const index = store.momentOf(entry), { run } = entry;
    this.run = run;
    say(this.title, titleOf(entry, store));
    say(this.state, stateOf(entry));
    this.stop.hidden = !entry.live;
    this.close.hidden = store.shown.length < 2;
    this.element.classList.toggle("focus", store.focus === entry.key && store.shown.length > 1);
    this.element.classList.toggle("failed", run.finish === "error" || run.finish === "rejected");
    const told = figures(run, index);
    const values = [told.forwards, told.tokens, figure(told.rate), told.seconds === null ? "–" : figure(told.seconds, 2)];
    this.numbers.forEach((element, place) => say(element, String(values[place])));
    const { differs, first } = shared.parting(entry);
    const selected = store.selected, room = this.element.clientWidth - 32; // asked before anything is changed
    this.text(run, index, { selected, differs, first });
    this.map.draw(run, { index, selected: selected !== null && selected < run.width ? selected : null, first, extent: shared.extent, palette: shared.palette, room });
    mark(this.canvas, "aria-label", `Map of run ${entry.name}: ${run.width} positions, ${run.moments.length} frames; ${told.tokens} settled at frame ${index}`);
  }
}

/** One of six colours. */
export function badgeOf(entry) {
  return `badge-${(entry.key.split("-")[1] - 1) % 6}`;
}

/** What sets a run apart: its changed options, or those of its parent's it does not share. */
export function titleOf(entry, store) {
  const { head } = entry.run;
  const parent = entry.parent ? store.entries.get(entry.parent) : null;
  if (!head) return entry.label || "starting…";
  if (!parent) return short(shown(entry.label || head.strategy || "run"), 200);
  const changed = changedOptions(head, parent.run.head).map(([name, value]) => `${name} ${value}`);
  return `${parent.name} from frame ${entry.index}: ${short(shown(changed.join(", ")) || "as before", 200)}`;
}

function stateOf(entry) {
  if (entry.run.error) return short(shown(entry.run.error), 160);
  if (entry.run.finish) return `ended: ${shown(entry.run.finish)}`;
  return entry.live ? "running" : "unfinished";
}

export class Stage {
  constructor(store, act) {
    this.store = store;
    this.act = act;
    this.lanes = new Map();
    this.root = the("lanes");
  }

  draw(palette) {
    const { store } = this;
    for (const key of this.lanes.keys()) if (!store.shown.includes(key)) this.lanes.delete(key);
    const entries = store.lanes;
    for (const entry of entries) if (!this.lanes.has(entry.key)) this.lanes.set(entry.key, new Lane(entry, this.act));
    const wanted = entries.map((entry) => this.lanes.get(entry.key).element);
    if (wanted.length !== this.root.children.length || wanted.some((element, place) => this.root.children[place] !== element)) fill(this.root, ...wanted);
    mark(this.root, "data-count", entries.length);
    the("welcome").hidden = entries.length > 0;
    the("watch").hidden = entries.length === 0;
    const extent = { columns: Math.max(1, ...entries.map((entry) => entry.run.width)), rows: Math.max(1, ...entries.map((entry) => entry.run.moments.length)) };
    const shared = { palette, extent, parting: (entry) => this.parting(entry) };
    for (const entry of entries) this.lanes.get(entry.key).draw(entry, store, shared);
    this.verdict(entries);
  }

  /** Positions where an entry differs now from the first one shown, and the first one of all. */
  parting(entry) {
    const [base] = this.store.lanes;
    if (!base || base === entry) {
      const other = this.store.lanes[1];
      if (!other) return { differs: new Set(), first: null };
      return { differs: new Set(), first: firstDifference(base.run, other.run)?.position ?? null };
    }
    const { at } = this.store;
    return { differs: differing(base.run, entry.run, at), first: firstDifference(base.run, entry.run)?.position ?? null };
  }

  verdict(entries) {
    const lines = entries.length < 2 ? [] : entries.slice(1).map((entry) => this.compared(entries[0], entry));
    const root = the("verdict");
    root.hidden = !lines.length;
    const told = JSON.stringify(lines);
    if (this.told === told) return;
    this.told = told;
    fill(root, ...lines.map(({ text, index, key }) => make("p", {}, text, " ", index === null ? null : make("button", { type: "button", class: "quiet", text: "Show it", on: { click: () => this.act.jump(index, key) } }))));
  }

  compared(one, two) {
    const broken = [one, two].find((entry) => entry.run.error && !entry.run.tokens.length);
    if (broken) return { text: `${broken.name} failed: ${short(shown(broken.run.error), 200)}`, index: null, key: broken.key };
    const difference = firstDifference(one.run, two.run), same = sameAnswer(one.run, two.run);
    const [first, second] = [figures(one.run, Infinity), figures(two.run, Infinity)];
    const cost = `${one.name} took ${first.forwards} forwards, ${two.name} ${second.forwards}`;
    if (!difference) return { text: `${same ? `${one.name} and ${two.name} give the same answer` : `${one.name} and ${two.name} do not differ so far`}; ${cost}.`, index: null, key: two.key };
    const told = [difference.one, difference.two].map((cell) => (cell ? `“${short(word(cell[1] === null ? null : cell[3]), 24)}”` : "nothing"));
    const words = same === null ? "differ so far" : same ? "give the same answer" : "give different answers";
    return { text: `${one.name} and ${two.name} ${words}, first at position ${difference.position}: ${told[0]} and ${told[1]}, parted at frame ${difference.index}; ${cost}.`, index: difference.index, key: two.key, position: difference.position };
  }
}
