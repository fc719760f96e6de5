/**
 * The steps of a decode in a notebook or a saved page: a slider, and every answer after the chosen step.
 *
 * Each element `.dlstep-steps` contains the last state as HTML, for viewers that run no scripts, and gets a shadow tree with the
 * slider. Styles and ids of a shadow tree apply to it alone, so a page can have many of them.
 */
import { differing } from "./compare.js";
import { make, mark, say } from "./dom.js";
import { legend } from "./scale.js";
import { counted, shown } from "./shown.js";
import { cellAt, fold } from "./state.js";
import { Answer } from "./text.js";
import { Time } from "./time.js";

const CHANGED = "changed in this step";

/** The value in a base64 text of compressed JSON. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** One request: counts, prompt, answer, and the chosen position. `by(steps)` moves the slider. */
class Shown {
  constructor({ head, frames, steps }, by) {
    this.name = `request ${head.request}`;
    this.run = fold(frames);
    this.steps = steps;
    this.selected = null;
    this.counts = make("b", {});
    this.answer = new Answer(this.name.replace(" ", "-"), (position) => this.select(position), by, CHANGED);
    mark(this.answer.list, "aria-label", `Answer of ${this.name}, position by position`);
    this.readout = make("p", { class: "readout soft", role: "status" });
    const title = make("p", {}, this.counts, " ", make("span", { class: "soft prompt", text: shown(head.prompt) }));
    this.element = make("div", { class: "request" }, title, this.answer.list, this.readout);
  }

  select(position) {
    this.selected = position;
    this.draw(this.step);
  }

  draw(step) {
    this.step = step;
    const { run } = this, index = this.steps.findLastIndex((each) => each <= step);
    this.element.hidden = index < 0;
    if (index < 0) return;
    say(this.counts, `${this.name}, ${countsOf(run, index)}`);
    const before = { ...run, moments: run.moments.slice(0, index) };
    this.answer.draw(run, index, { selected: this.selected, differs: index ? differing(before, run, index) : new Set(), first: null });
    const label = this.selected === null ? null : this.answer.cells[this.selected]?.getAttribute("aria-label");
    const cell = label && cellAt(run, index, this.selected);
    const since = cell && cell[1] !== null ? `, since step ${this.steps[sinceOf(run, index, this.selected)]}` : "";
    say(this.readout, label ? `${label}${since}` : "Click a position, or move through the answer with the arrow keys.");
  }
}

function countsOf(run, index) {
  const moment = run.moments[index], passes = counted(moment.nfe, "forward pass");
  if (run.finish && index === run.moments.length - 1) {
    const error = run.error ? `. ${shown(run.error)}` : "";
    return `ended by ${run.finish} after ${passes}: ${counted(moment.settled, "token")}${error}`;
  }
  const masked = moment.cells.filter((cell) => cell[1] === null).length;
  return `${passes}: ${moment.settled + moment.cells.length - masked} unmasked, ${masked} masked`;
}

/** The index of the moment at which a position got its current token. */
function sinceOf(run, index, position) {
  let since = index;
  while (since > 0 && cellAt(run, since - 1, position)?.[1] === cellAt(run, index, position)[1]) since -= 1;
  return since;
}

/** Follow the theme of the page around an element: a dark page has light text. */
function followTheme(root) {
  const apply = () => {
    const [red, green, blue] = getComputedStyle(root.parentElement).color.match(/[\d.]+/g).map(Number);
    mark(root, "data-theme", 0.3 * red + 0.6 * green + 0.1 * blue > 128 ? "dark" : "light");
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  for (const element of [document.documentElement, document.body]) new MutationObserver(apply).observe(element, { attributes: true });
  apply();
}

async function enhance(root) {
  const shadow = root.attachShadow({ mode: "open" });
  shadow.append(make("slot")); // the HTML of the last state, until the slider is ready
  const { style, first, last, runs } = await unpacked(root.dataset.steps);
  const requests = runs.map((run) => new Shown(run, (by) => time.by(by)));
  const time = new Time((index) => draw(index), "step");
  const draw = (index) => {
    const step = first + index;
    time.draw(index, last - first, `step ${step} of ${last}`);
    for (const request of requests) request.draw(step);
  };
  const bar = make("div", { class: "time", role: "group", "aria-label": "Step" }, ...time.elements());
  const answers = requests.length ? requests.map((request) => request.element) : [make("p", { class: "soft", text: "No request was submitted yet." })];
  const view = make("div", { class: "steps" }, bar, ...answers, legend("underlined", CHANGED));
  followTheme(root);
  draw(last - first);
  shadow.replaceChildren(make("style", { text: style }), view);
}

for (const root of document.querySelectorAll(".dlstep-steps")) if (!root.shadowRoot) enhance(root);
