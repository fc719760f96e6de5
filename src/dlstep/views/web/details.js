/** Details of one position over all steps, and of the plan of one step. */
import { allowedAt, cellAt, clamped } from "./state.js";
import { chance, counted, short, shown, word } from "./shown.js";
import { draw, fill, make } from "./dom.js";
import { shade } from "./scale.js";

const heads = new WeakMap(); // the head that an element shows
const WIDE = 280, HIGH = 64, MOST_ROWS = 200;

/** Put the details of a position into an element. */
export function drawCell(root, run, index, position) {
  if (position === null || !run) return fill(root, make("p", { class: "soft", text: "Click a position, or move through the answer with the arrow keys." }));
  const at = clamped(run, index), cell = cellAt(run, at, position);
  const head = make("p", { class: "chosen" }, make("b", { text: `Position ${position}` }), " ", nowOf(run, at, position, cell));
  return fill(root, head, curve(run, at, position), rivals(run, at, position), historyOf(run, at, position));
}

function nowOf(run, at, position, cell) {
  if (!cell) return "is outside the window at this step.";
  const allowed = allowedAt(run, at, position);
  if (cell[1] === null) return allowed === null ? "is masked." : `is masked. The constraint allows ${counted(allowed, "token")}.`;
  const settled = position < run.moments[at].settled ? "settled" : "unmasked";
  return `is “${short(word(cell[3]), 80)}”, ${settled}, probability ${chance(cell[2])}, id ${cell[1]}.`;
}

/** The probability over the steps as bars; masked positions have none. */
function curve(run, at, position) {
  const steps = run.moments.length, wide = WIDE / Math.max(steps, 1);
  const bars = run.moments.map((_, index) => {
    const cell = cellAt(run, index, position);
    if (!cell || cell[1] === null) return null;
    const height = Math.max(2, cell[2] * HIGH);
    return draw("rect", { class: `bar q${shade(cell[2])}`, x: index * wide, y: HIGH - height, width: Math.max(wide - 1, 0.6), height });
  });
  const here = draw("rect", { class: "here", x: at * wide, y: 0, width: Math.max(wide - 1, 1), height: HIGH });
  const label = `Probability of position ${position} over ${steps} frames`;
  return draw("svg", { class: "curve", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, here, ...bars);
}

function rivals(run, at, position) {
  const found = run.moments[at]?.rivals?.[String(position)];
  if (!found?.length) return null;
  const rows = found.map(([id, probability, text]) => make("li", {}, make("q", { text: short(word(text), 60) }), ` ${chance(probability)}, id ${id}`));
  return make("div", {}, make("h4", { text: "Candidates at this step" }), make("ol", { class: "rivals" }, ...rows));
}

/** One row per change of the position, so the table of a long run stays short. */
function historyOf(run, at, position) {
  const rows = [];
  let before = null;
  run.moments.forEach((moment, index) => {
    const cell = cellAt(run, index, position);
    const text = cell ? word(cell[1] === null ? null : cell[3]) : "outside the window";
    const settled = index >= 0 && position < moment.settled;
    const now = `${cell?.[1]}/${cell?.[2]}/${settled}/${text}`;
    if (now === before) return;
    before = now;
    rows.push(rowOfMoment(moment, index === at, cell, text, settled));
  });
  const head = make("tr", {}, ...["frame", "token", "probability", ""].map((text) => make("th", { scope: "col", text })));
  const body = make("tbody", {}, ...rows.slice(-MOST_ROWS));
  const caption = make("caption", { text: `Tokens of position ${position}` });
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes of the position" }, make("table", {}, caption, make("thead", {}, head), body));
}

function rowOfMoment(moment, here, cell, text, settled) {
  const probability = cell && cell[1] !== null ? chance(cell[2]) : "";
  const state = settled ? "settled" : cell?.[1] === null ? "" : cell ? "unmasked" : "";
  return make("tr", { class: here ? "here" : null }, ...[moment.seq, short(text, 40), probability, state].map((value) => make("td", { text: String(value) })));
}

/** Put the prompt and all options of a run into an element. */
export function drawHead(root, run) {
  const head = run?.head;
  if (heads.get(root) === head) return undefined;
  heads.set(root, head);
  if (!head) return fill(root);
  const { seed, temperature, max_tokens } = head;
  const options = Object.entries({ ...head.options, temperature, seed, max_tokens }).filter(([, value]) => value !== null && value !== undefined);
  const list = options.flatMap(([name, value]) => [make("dt", { text: short(shown(name.replaceAll("_", " ")), 60) }), make("dd", { text: short(shown(String(value)), 60) })]);
  const prompt = make("p", { class: "prompt", text: shown(head.prompt ?? "") });
  return fill(root, make("h3", { text: "Prompt" }), prompt, make("h3", { text: `Options of ${shown(head.strategy ?? "the run")}` }), make("dl", { class: "plan" }, ...list));
}

/** Put the plan of a moment into an element: what the forward pass that led to it computed. */
export function drawPlan(root, moment) {
  const plan = moment?.plan;
  if (!plan) return fill(root, make("p", { class: "soft", text: "No forward pass led to this frame." }));
  const rows = [
    ["rows fed", `${plan.rows}, from position ${plan.start}`], ["cached prompt tokens", plan.cached], ["positions stored", plan.stored],
    ["sampled", plan.sampled && sampled(plan.sampled)], ["pages held", plan.pages], ["preempted", plan.preempted ? "yes" : "no"],
    ["whole batch", `${plan.batch_rows} rows of ${plan.batch_requests} request${plan.batch_requests === 1 ? "" : "s"}`],
  ];
  const list = rows.filter(([, value]) => value !== undefined && value !== null).flatMap(([name, value]) => [make("dt", { text: name }), make("dd", { text: String(value) })]);
  return fill(root, make("dl", { class: "plan" }, ...list));
}

/** The number of positions, and their ranges: 4: 3 to 5, 9. */
export function sampled(positions) {
  if (!positions.length) return "none: this pass only stored keys and values";
  const runs = [];
  for (const position of positions) {
    const last = runs.at(-1);
    if (last && last[1] === position - 1) last[1] = position;
    else runs.push([position, position]);
  }
  const ranges = runs.slice(0, 6).map(([from, to]) => (from === to ? String(from) : `${from} to ${to}`));
  return `${positions.length}: ${ranges.join(", ")}${runs.length > 6 ? ", …" : ""}`;
}
