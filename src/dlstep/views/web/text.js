/** The text of a run at a moment: settled tokens, unmasked tokens shaded by probability, and masked positions as cells. */
import { allowedAt, cellAt, extent } from "./state.js";
import { shade } from "./scale.js";
import { brief, chance, counted, shown, word } from "./shown.js";
import { make, mark } from "./dom.js";

export class Answer {
  /** A list box of positions. `pick(position)` is called when one is selected, `step(by)` for the up and down keys. `difference` describes marked positions. */
  constructor(name, pick, step, difference = "differs") {
    this.pick = pick;
    this.step = step;
    this.name = name;
    this.difference = difference;
    this.cells = []; // elements, by position
    this.drawn = []; // what each element shows
    this.chosen = null;
    this.list = make("div", { class: "answer", role: "listbox", tabindex: "0", "aria-label": `Answer of run ${name}, position by position` });
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.list.addEventListener("keydown", (event) => this.pressed(event));
  }

  clicked(event) {
    const cell = event.target.closest("[data-position]");
    if (cell) this.pick(Number(cell.dataset.position));
  }

  pressed(event) {
    const end = this.cells.length - 1;
    const to = { ArrowLeft: (this.chosen ?? 1) - 1, ArrowRight: (this.chosen ?? -1) + 1, Home: 0, End: end }[event.key];
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if ((to === undefined && by === undefined) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (by !== undefined) return this.step(by);
    if (end < 0) return undefined;
    this.choose(Math.max(0, Math.min(end, to))); // not at the next drawing: keys may repeat faster
    return this.pick(this.chosen);
  }

  /** Show a run at a moment. Only changed positions are updated. */
  draw(run, index, { selected, differs, first }) {
    const count = extent(run, index), settled = run.moments[index]?.settled ?? 0;
    while (this.cells.length > count) {
      this.cells.pop().remove();
      this.drawn.pop();
    }
    for (let position = 0; position < count; position += 1) {
      const cell = cellAt(run, index, position), allowed = allowedAt(run, index, position);
      const kind = kindOf(cell, position < settled) + (allowed === null ? "" : " counted") + (differs.has(position) ? " differs" : "") + (first === position ? " first" : "");
      const text = cell?.[3] ?? null;
      const old = this.drawn[position];
      if (old && old.kind === kind && old.text === text && old.probability === cell?.[2] && old.allowed === allowed) continue;
      this.put(position, cell, kind, text, allowed);
    }
    this.choose(selected !== null && selected < count ? selected : null);
  }

  put(position, cell, kind, text, allowed) {
    let element = this.cells[position];
    if (!element) {
      element = make("span", { role: "option", id: `${this.name}-${position}`, "data-position": position, "aria-selected": "false" });
      this.cells[position] = element;
      this.list.append(element);
    }
    element.className = `cell ${kind}`;
    element.textContent = allowed === null ? textOf(cell, text, kind) : brief(allowed);
    element.setAttribute("aria-label", labelOf(position, cell, kind, this.difference, allowed));
    this.drawn[position] = { kind, text, probability: cell?.[2], allowed };
  }

  choose(position) {
    if (this.chosen !== null) this.cells[this.chosen]?.setAttribute("aria-selected", "false");
    this.chosen = position;
    if (position !== null) this.cells[position].setAttribute("aria-selected", "true");
    mark(this.list, "aria-activedescendant", position === null ? null : this.cells[position].id);
  }
}

function kindOf(cell, isSettled) {
  if (!cell || cell[1] === null) return "open";
  const end = cell[3] === "" ? " end" : "";
  return `${isSettled ? "settled" : "unmasked"} p${shade(cell[2])}${end}`;
}

function textOf(cell, text, kind) {
  if (!cell || cell[1] === null) return "·";
  if (text === "" || text === null) return "∎";
  if (kind.startsWith("settled")) return shown(text).replaceAll("\n", "↵\n");
  return shown(text).replaceAll("\n", "↵");
}

function labelOf(position, cell, kind, difference, allowed) {
  const marked = kind.includes(" differs") ? `, ${difference}` : "";
  const left = allowed === null ? "" : `, ${counted(allowed, "token")} allowed`;
  if (!cell || cell[1] === null) return `position ${position}, masked${left}${marked}`;
  return `position ${position}, ${word(cell[3])}, ${kind.startsWith("settled") ? "settled" : "unmasked"}, probability ${chance(cell[2])}${marked}`;
}
