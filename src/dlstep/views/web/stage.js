/** The middle of the page: the displayed runs side by side, all at the same moment. */
import { Answer } from "./text.js";
import { StepMap } from "./map.js";
import { changedOptions, differing, figures, firstDifference, sameAnswer } from "./compare.js";
import { broken, cellAt } from "./state.js";
import { chance, counted, figure, short, shown, word } from "./shown.js";
import { fill, make, mark, say, the } from "./dom.js";

// The layout of a long text takes longer than a frame of the screen, so it is drawn less often than the map.
const LONG_RUN = 300; // positions
const REDRAW_PAUSE = 120; // milliseconds

// Labels and their long forms.
const FIGURES = [["passes", "forward passes"], ["tokens", "settled tokens"], ["per pass", "tokens per forward pass"], ["seconds", "seconds"]];

/** One run: name, figures, text, map. */
class Lane {
  constructor(entry, act) {
    this.answer = new Answer(entry.name, (position) => act.select(position, entry.key), act.step);
    this.canvas = make("canvas", { class: "map", role: "img" });
    this.map = new StepMap(this.canvas, (index, position) => index !== null && act.pick(entry.key, index, position), (index, position) => this.point(index, position));
    this.numbers = FIGURES.map(([, title]) => make("dd", { title }));
    this.readout = make("p", { class: "readout soft" });
    this.title = make("h3", {});
    this.state = make("span", { class: "state" });
    this.stop = make("button", { type: "button", class: "quiet", text: "Stop", on: { click: () => act.stop(entry.key) } });
    this.close = make("button", { type: "button", class: "quiet", "aria-label": `Hide run ${entry.name}`, text: "✕", on: { click: () => act.hide(entry.key) } });
    const badge = make("span", { class: `badge ${badgeOf(entry)}`, text: entry.name });
    const head = make("header", {}, badge, this.title, this.state, this.stop, this.close);
    const numbers = make("dl", { class: "figures" }, ...FIGURES.map(([name], place) => make("div", {}, make("dt", { text: name }), this.numbers[place])));
    this.element = make("article", { class: "lane", "aria-label": `Run ${entry.name}` }, head, numbers, this.answer.list, make("div", { class: "canvas" }, this.canvas), this.readout);
    this.later = act.later;
    this.drawnAt = -Infinity; // time of the last drawing of the text
    this.waits = null;
    this.element.addEventListener("focusin", () => act.focus(entry.key));
  }

  point(index, position) {
    const cell = index === null ? null : cellAt(this.run, index, position);
    if (index === null) return say(this.readout, "\u00a0");
    const token = cell ? `${short(word(cell[1] === null ? null : cell[3]), 60)}${cell[1] === null ? "" : `, probability ${chance(cell[2])}`}` : "outside the window";
    return say(this.readout, `frame ${index}, position ${position}: ${token}`);
  }

  /** Draw the text, a long one after a pause. */
  text(run, index, marks) {
    const wait = run.width > LONG_RUN ? REDRAW_PAUSE - (performance.now() - this.drawnAt) : 0;
    if (wait > 0) {
      this.waits ??= setTimeout(() => {
        this.waits = null;
        this.later();
      }, wait);
      return;
    }
    this.drawnAt = performance.now();
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
    this.element.classList.toggle("failed", broken(run));
    const counts = figures(run, index);
    const values = [counts.forwards, counts.tokens, figure(counts.rate), counts.seconds === null ? "–" : figure(counts.seconds, 2)];
    this.numbers.forEach((element, place) => say(element, String(values[place])));
    const { differs, first } = shared.differences(entry);
    const selected = store.selected, room = this.element.clientWidth - 32; // read before any change, which would force a layout
    this.text(run, index, { selected, differs, first });
    this.map.draw(run, { index, selected: selected !== null && selected < run.width ? selected : null, first, extent: shared.extent, palette: shared.palette, room });
    mark(this.canvas, "aria-label", `Map of run ${entry.name}: ${run.width} positions, ${run.moments.length} frames; ${counts.tokens} settled at frame ${index}`);
  }
}

/** One of six colours. */
export function badgeOf(entry) {
  return `badge-${(entry.key.split("-")[1] - 1) % 6}`;
}

/** The title of a run: its label, or for a fork the options that differ from its parent. */
export function titleOf(entry, store) {
  const { head } = entry.run;
  const parent = entry.parent ? store.entries.get(entry.parent) : null;
  if (!head) return entry.label || "starting…";
  if (!parent) return short(shown(entry.label || head.strategy || "run"), 200);
  const changed = changedOptions(head, parent.run.head).map(([name, value]) => `${name} ${value}`);
  return `${parent.name} from frame ${entry.index}: ${short(shown(changed.join(", ")) || "unchanged", 200)}`;
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
    const elements = entries.map((entry) => this.lanes.get(entry.key).element);
    if (elements.length !== this.root.children.length || elements.some((element, place) => this.root.children[place] !== element)) fill(this.root, ...elements);
    mark(this.root, "data-count", entries.length);
    the("welcome").hidden = entries.length > 0;
    the("watch").hidden = entries.length === 0;
    const extent = { columns: Math.max(1, ...entries.map((entry) => entry.run.width)), rows: Math.max(1, ...entries.map((entry) => entry.run.moments.length)) };
    const shared = { palette, extent, differences: (entry) => this.differences(entry) };
    for (const entry of entries) this.lanes.get(entry.key).draw(entry, store, shared);
    this.verdict(entries);
  }

  /** Positions at which an entry now differs from the first displayed one, and the first difference at the end. */
  differences(entry) {
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
    const drawn = JSON.stringify(lines);
    if (this.drawn === drawn) return;
    this.drawn = drawn;
    fill(root, ...lines.map(({ text, index, key }) => make("p", {}, text, " ", index === null ? null : make("button", { type: "button", class: "quiet", text: "Show it", on: { click: () => this.act.jump(index, key) } }))));
  }

  compared(one, two) {
    const broken = [one, two].find((entry) => entry.run.error && !entry.run.tokens.length);
    if (broken) return { text: `${broken.name} failed: ${short(shown(broken.run.error), 200)}`, index: null, key: broken.key };
    const difference = firstDifference(one.run, two.run), same = sameAnswer(one.run, two.run);
    const [first, second] = [figures(one.run, Infinity), figures(two.run, Infinity)];
    const cost = `${one.name} took ${counted(first.forwards, "forward pass")}, ${two.name} ${second.forwards}`;
    if (!difference) return { text: `${same ? `${one.name} and ${two.name} give the same answer` : `${one.name} and ${two.name} do not differ so far`}; ${cost}.`, index: null, key: two.key };
    const tokens = [difference.one, difference.two].map((cell) => (cell ? `“${short(word(cell[1] === null ? null : cell[3]), 24)}”` : "no token"));
    const words = same === null ? "differ so far" : same ? "give the same answer" : "give different answers";
    return { text: `${one.name} and ${two.name} ${words}, first at position ${difference.position}: ${tokens[0]} and ${tokens[1]}, different from frame ${difference.index} on; ${cost}.`, index: difference.index, key: two.key, position: difference.position };
  }
}
