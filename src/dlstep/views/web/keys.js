/** Keyboard shortcuts. They are inactive while the user types, and can be turned off. */
import { make, the, fill } from "./dom.js";

const TYPED = "input:not([type=checkbox]):not([type=range]), textarea, select";

/** `acts` maps a key to [description, function]. */
export class Keys {
  constructor(acts) {
    this.acts = acts;
    const rows = Object.entries(acts).map(([key, [words]]) => make("div", {}, make("dt", {}, make("kbd", { text: nameOfKey(key) })), make("dd", { text: words })));
    const more = [["Ctrl Enter", "in the prompt: generate"], ["← → ↑ ↓", "in an answer: move through positions (← →) and frames (↑ ↓)"], ["Esc", "close the dialog"]];
    rows.push(...more.map(([key, words]) => make("div", {}, make("dt", {}, make("kbd", { text: key })), make("dd", { text: words }))));
    fill(the("shortcuts"), ...rows);
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const act = this.acts[event.key] ?? this.acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.altKey || event.metaKey || !the("keys-on").checked) return;
    const { target } = event;
    const busy = target.matches(TYPED) || document.querySelector("dialog[open]");
    const own = event.key === " " && target.matches("button, summary, input");
    const slides = target.matches("input[type=range]") && event.key.startsWith("Arrow");
    if (busy || own || slides) return;
    event.preventDefault();
    act[1]();
  }
}

function nameOfKey(key) {
  return { " ": "Space", ArrowLeft: "←", ArrowRight: "→" }[key] ?? key.toUpperCase();
}
