/** Forks: the tree of runs, and the dialog that forks a run at a frame. */
import { Settings } from "./settings.js";
import { Controls } from "./controls.js";
import { badgeOf, titleOf } from "./stage.js";
import { counted, short } from "./shown.js";
import { fill, make, mark, say, the } from "./dom.js";
import { broken } from "./state.js";

/** The tree of all runs, as nested lists. */
export class Tree {
  constructor(store, act) {
    this.store = store;
    this.act = act;
    this.root = the("tree");
    this.drawn = ""; // what the tree shows
  }

  draw() {
    const { store } = this;
    const state = JSON.stringify([...store.entries.values()].map((entry) => [entry.key, titleOf(entry, store), this.status(entry)]).concat([store.shown, store.focus]));
    if (state === this.drawn) return;
    this.drawn = state;
    const focused = document.activeElement?.dataset?.tree;
    const roots = [...store.entries.values()].filter((entry) => !store.entries.has(entry.parent));
    fill(this.root, ...roots.map((entry) => this.branch(entry)));
    if (focused) this.root.querySelector(`[data-tree="${focused}"]`)?.focus();
    the("runs").hidden = !roots.length;
  }

  branch(entry) {
    const { store } = this;
    const forks = [...store.entries.values()].filter((each) => each.parent === entry.key);
    const shown = store.shown.includes(entry.key);
    const box = make("input", { type: "checkbox", "aria-label": `Show run ${entry.name} next to the others`, "data-tree": `box-${entry.key}` });
    box.checked = shown;
    box.addEventListener("change", () => this.act.beside(entry.key, box.checked));
    const badge = make("span", { class: `badge ${badgeOf(entry)}`, text: entry.name });
    const words = make("span", { class: "title", text: short(titleOf(entry, store), 90) });
    const alone = make("button", { type: "button", class: "run", "data-tree": entry.key, "aria-current": store.focus === entry.key ? "true" : null, on: { click: () => this.act.alone(entry.key) } }, badge, words, make("small", { text: this.status(entry) }));
    return make("li", {}, make("div", { class: "branch" }, box, alone), forks.length ? make("ul", {}, ...forks.map((each) => this.branch(each))) : null);
  }

  status(entry) {
    const nfe = entry.run.moments.at(-1)?.nfe ?? 0;
    return entry.run.error ? "failed" : `${counted(nfe, "forward pass")}${entry.run.finish ? "" : entry.live ? ", running" : ", unfinished"}`;
  }
}

/** The entry that decoded the moment `index`: forks share the beginning of their parents. */
export function ownerOf(store, entry, index) {
  let owner = entry;
  while (owner.parent && store.entries.has(owner.parent) && index < owner.run.first) owner = store.entries.get(owner.parent);
  return owner;
}

/** Why an entry cannot be forked at a moment; null if it can. */
export function hindrance(store, entry, index, served) {
  if (!entry || !entry.run.moments.length) return "there is no run yet";
  if (broken(ownerOf(store, entry, index).run)) return "this run failed: generate again, or select another run";
  if (!served) return "a fork needs the server that decoded the run";
  if (entry.run.head?.kind === "trace") return "this run comes from a trace, which the server does not have";
  if (entry.run.finish && index >= entry.run.moments.length - 1) return "the answer ends here: fork it at an earlier frame";
  return null;
}

/** The dialog. `start(entry, index, body)` starts the fork. */
export class ForkDialog {
  constructor(start) {
    this.start = start;
    this.dialog = the("fork");
    the("fork-form").addEventListener("submit", (event) => this.submit(event));
    the("fork-cancel").addEventListener("click", () => this.dialog.close());
  }

  open(entry, index, known) {
    const { head } = entry.run;
    this.entry = entry;
    this.index = index;
    this.settings = new Settings(known, head.options ?? {});
    const sampling = [
      { name: "seed", kind: "integer", optional: true, default: null, least: 0, most: Number.MAX_SAFE_INTEGER, doc: "Seed of all random draws after the fork. Empty: the seed of the run." },
      { name: "temperature", kind: "number", default: head.temperature ?? 0, least: 0, most: 2, doc: "0 always selects the most probable token." },
    ];
    this.sampling = new Controls(sampling);
    say(the("fork-title"), `Fork run ${entry.name} at frame ${index}`);
    fill(the("fork-options"), this.settings.element, this.sampling.element);
    mark(this.dialog, "aria-labelledby", "fork-title");
    this.dialog.showModal();
  }

  submit(event) {
    event.preventDefault();
    const body = { seq: this.entry.run.moments[this.index].seq, dlstep: this.settings.values(), ...this.sampling.values() };
    this.dialog.close();
    this.start(this.entry, this.index, body);
  }
}
