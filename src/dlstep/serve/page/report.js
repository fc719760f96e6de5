/** The answers of an evaluation: filters and details. Texts only become text nodes. */
import { fill, make, say, the } from "./dom.js";
import { parsed } from "./json.js";
import { chance, counted, figure, shown } from "./shown.js";

const PAGE = 50; // answers that one click adds
const data = parsed(the("data").textContent);
let most = PAGE;

/** A text on one line. */
function line(text) {
  return shown(text).replaceAll("\n", "↵");
}

/** A titled part of an answer. */
function titled(name, ...parts) {
  return [make("h3", { text: name }), ...parts];
}

function fact(name, value) {
  return value === "" || value === null ? null : make("div", {}, make("dt", { text: name }), make("dd", { text: line(value) }));
}

/** A box per token with the step that unmasked it, from blue (early) to red (late). */
function strip(answer) {
  const boxes = answer.decided.map((step, place) => {
    const hint = `token ${place + 1}, step ${step}, probability ${chance(answer.probabilities[place] ?? 0)}`;
    const box = make("li", { text: step, title: hint });
    box.style.background = `hsl(${Math.round(220 * (1 - step / Math.max(1, answer.steps)))} 80% 80%)`;
    return box;
  });
  return make("ol", { class: "strip", tabindex: "0", "aria-label": "The step that unmasked each token" }, ...boxes);
}

function opened(answer) {
  const set = data.sets[answer.set];
  return make(
    "div", {},
    make(
      "dl", { class: "facts" },
      fact("Found", answer.found), fact("Expected", answer.gold), fact("Score", figure(answer.score)), fact("Note", answer.note), fact("Error", answer.error),
      fact("Options", data.sets.length > 1 ? set : ""), fact("Ended by", answer.finish), fact("Forward passes", answer.forwards), fact("Steps", answer.steps),
      fact("Tokens", answer.tokens), fact("Seconds", figure(answer.seconds)),
    ),
    ...titled("Decode again, step by step", make("pre", { text: shown(answer.command) })),
    ...titled("Answer", make("pre", { text: shown(answer.answer) || "(empty)" })),
    ...titled("Prompt", make("pre", { text: shown(data.prompts[answer.prompt]) })),
    ...(answer.decided.length ? titled("Step that unmasked each token", strip(answer)) : []),
  );
}

function item(answer) {
  const right = answer.score >= 1;
  const reason = right ? `found ${answer.found}` : answer.error || answer.note || `found ${answer.found || "nothing"}, expected ${answer.gold}`;
  const cost = `${answer.forwards} forward ${answer.forwards === 1 ? "pass" : "passes"}, ${figure(answer.seconds)} s`;
  const set = data.sets.length > 1 ? ` · ${line(data.sets[answer.set])}` : "";
  const summary = make(
    "summary", {},
    make("span", { class: right ? "verdict right" : "verdict", text: right ? "right" : "wrong" }),
    make("span", { class: "text", text: `${answer.task} ${answer.document}${set}` }),
    make("span", { class: "why text", text: line(reason) }), make("span", { class: "cost", text: cost }),
  );
  const details = make("details", {}, summary);
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(opened(answer)));
  return make("li", {}, details);
}

/** The answers that the form selects, in its order. */
function chosen() {
  const value = (name) => the(name).value, words = value("search").trim().toLowerCase();
  const fits = (answer) =>
    (!value("task") || answer.task === value("task")) && (!value("set") || String(answer.set) === value("set")) &&
    (!value("result") || (answer.score >= 1) === (value("result") === "right")) && (!value("finish") || answer.finish === value("finish")) &&
    (!words || [data.prompts[answer.prompt], answer.answer, answer.gold, answer.found, answer.note, answer.name].some((text) => text.toLowerCase().includes(words)));
  const found = data.answers.filter(fits), by = value("order");
  return by === "place" ? found : found.sort((one, other) => other[by] - one[by]);
}

function draw() {
  const found = chosen();
  say(the("count"), `${counted(found.length, "answer")} of ${data.answers.length}${found.length > most ? `, showing the first ${most}` : ""}`);
  fill(the("answers"), ...found.slice(0, most).map(item));
  the("more").hidden = found.length <= most;
}

the("filters").addEventListener("input", () => {
  most = PAGE;
  draw();
});
the("filters").addEventListener("submit", (event) => event.preventDefault());
the("more").addEventListener("click", () => {
  const before = most;
  most += PAGE;
  draw();
  the("answers").children[before]?.querySelector("summary").focus();
});
draw();
