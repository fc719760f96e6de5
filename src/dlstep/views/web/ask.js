/** The form: prompt or conversation, sampling, and one to four variants of the options, each of which becomes a run. */
import { Settings } from "./settings.js";
import { Constraint } from "./constraint.js";
import { Controls } from "./controls.js";
import { fill, make, mark, say, the } from "./dom.js";
import { MOST_SHOWN, nameOf } from "./store.js";
import { notice } from "./live.js";
import { short, shown } from "./shown.js";

const SAMPLING = [
  { name: "max_tokens", kind: "integer", default: 128, least: 1, most: 4096, doc: "Maximum number of tokens in the answer." },
  { name: "temperature", kind: "number", default: 0, least: 0, most: 2, doc: "0 always selects the most probable token." },
  { name: "seed", kind: "integer", optional: true, default: null, least: 0, most: Number.MAX_SAFE_INTEGER, doc: "Optional. Equal seeds give equal answers." },
];

export class Ask {
  /** `start(requests)` is called with one request per variant: { body, label }. */
  constructor(start) {
    this.start = start;
    this.known = null;
    this.lanes = []; // the Settings of each variant
    this.turns = []; // the turns of the conversation so far
    this.chosen = 0;
    this.prompt = the("prompt");
    the("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) the("ask").requestSubmit();
    });
    the("rival").addEventListener("click", () => this.add());
    the("chat").addEventListener("change", () => this.talk());
    the("restart").addEventListener("click", () => this.forget());
  }

  /** Create the controls from the options of the server, and show the description of its model. */
  learn(known, description) {
    this.known = known;
    say(the("about"), shown(description));
    the("about").hidden = !description;
    this.lanes = [new Settings(known, {}, () => this.names())];
    const length = { ...SAMPLING[0], most: Math.min(4096, known.max_model_len), default: Math.min(128, known.max_model_len >> 1) };
    this.sampling = new Controls([length, ...SAMPLING.slice(1)]);
    this.constraint = new Constraint();
    fill(the("sampling"), this.sampling.element, this.constraint.element);
    const examples = known.examples ?? [];
    the("chat").checked = Boolean(known.chat) && examples.some((example) => example.messages);
    the("chats").hidden = !known.chat;
    fill(the("examples"), ...examples.map((example) => make("button", { type: "button", class: "chip", text: example.name, on: { click: () => this.use(example) } })));
    if (!this.prompt.value && examples.length) this.use(examples[0]);
    the("go").disabled = false;
    the("rival").disabled = false;
    this.tabs();
    this.talk();
  }

  use(example) {
    this.prompt.value = example.prompt ?? example.messages?.at(-1)?.content ?? "";
  }

  talk() {
    const talks = the("chat").checked && this.known?.chat;
    say(the("prompt-label"), talks ? "Your turn" : "Prompt");
    the("turns").hidden = !talks || !this.turns.length;
    the("restart").hidden = !talks || !this.turns.length;
    fill(the("turns"), ...this.turns.map((turn) => make("li", {}, make("b", { text: turn.role === "user" ? "You" : "Model" }), " ", short(shown(turn.content), 400))));
  }

  forget() {
    this.turns = [];
    this.talk();
  }

  /** Append an answer to the conversation. */
  answered(text) {
    if (!the("chat").checked || this.turns.at(-1)?.role !== "user") return;
    this.turns.push({ role: "assistant", content: text });
    this.talk();
  }

  /** Add a variant with the next rule. */
  add() {
    if (this.lanes.length >= MOST_SHOWN) return;
    const settings = new Settings(this.known, {}, () => this.names());
    const { rules } = settings;
    const place = rules.findIndex((rule) => rule.name === this.lanes.at(-1).chosen);
    if (rules.length) settings.pick(rules[(place + 1) % rules.length].name);
    this.lanes.push(settings);
    this.chosen = this.lanes.length - 1;
    this.tabs();
  }

  remove(place) {
    this.lanes.splice(place, 1);
    this.chosen = Math.min(this.chosen, this.lanes.length - 1);
    this.tabs();
    the("rival").focus();
  }

  tabs() {
    const several = this.lanes.length > 1;
    fill(the("tabs"), ...(several ? this.lanes.map((_, place) => this.tab(place)) : []));
    the("tabs").hidden = !several;
    const panels = this.lanes.map((lane, place) => {
      const removal = several && make("button", { type: "button", class: "quiet", text: `Remove variant ${nameOf(place + 1)}`, on: { click: () => this.remove(place) } });
      const attributes = several ? { role: "tabpanel", id: `panel-${place}`, "aria-labelledby": `tab-${place}` } : {};
      return make("div", { ...attributes, hidden: place !== this.chosen }, lane.element, removal || null);
    });
    fill(the("options"), ...panels);
    this.names();
    the("rival").disabled = this.lanes.length >= MOST_SHOWN;
  }

  tab(place) {
    const chosen = place === this.chosen;
    const pick = (next) => {
      this.chosen = (next + this.lanes.length) % this.lanes.length;
      this.tabs();
      the(`tab-${this.chosen}`).focus();
    };
    const keys = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      pick(place + by);
    };
    const attributes = { type: "button", role: "tab", id: `tab-${place}`, "aria-controls": `panel-${place}`, tabindex: chosen ? "0" : "-1" };
    return make("button", { ...attributes, "aria-selected": String(chosen), on: { click: () => pick(place), keydown: keys } });
  }

  names() {
    const several = this.lanes.length > 1;
    say(the("go"), several ? `Generate ${this.lanes.length}` : "Generate");
    if (!several) return;
    this.lanes.forEach((lane, place) => {
      const tab = the(`tab-${place}`);
      if (tab) say(tab, short(lane.words || nameOf(place + 1), 26));
    });
  }

  submit() {
    const text = this.prompt.value;
    if (!this.known) return;
    if (!text.trim()) {
      this.prompt.focus();
      notice("Write a prompt first, or select one of the examples below it.");
      return;
    }
    if (this.constraint.missing) {
      this.constraint.text.closest("details").open = true;
      this.constraint.text.focus();
      notice(`Write the ${this.constraint.missing} for the constraint, or set the constraint to none.`);
      return;
    }
    const sampling = { ...this.sampled(), ...this.constraint.body };
    const talks = the("chat").checked && this.known.chat;
    if (talks) this.turns.push({ role: "user", content: text });
    const input = talks ? { messages: this.turns.map((turn) => ({ ...turn })) } : { prompt: text };
    this.start(this.lanes.map((lane) => ({ body: { ...input, ...sampling, dlstep: lane.values() }, label: lane.words })));
    this.talk();
  }

  sampled() {
    const { max_tokens, temperature, seed } = this.sampling.current;
    return { max_tokens, temperature, ...(seed === null ? {} : { seed }) };
  }

  /** The contents of a link. */
  get link() {
    const constraint = this.constraint?.link;
    const contents = { prompt: this.prompt.value, sampling: this.sampling?.values() ?? {}, runs: this.lanes.map((lane) => lane.values()) };
    return constraint ? { ...contents, constraint } : contents;
  }

  /** Fill the form from the contents of a link. */
  fill({ prompt, sampling, runs, constraint }) {
    if (typeof prompt === "string") this.prompt.value = prompt;
    this.sampling.set(sampling ?? {});
    this.constraint.set(constraint);
    const variants = Array.isArray(runs) ? runs.slice(0, MOST_SHOWN) : [];
    this.lanes = (variants.length ? variants : [{}]).map((values) => {
      const settings = new Settings(this.known, {}, () => this.names());
      settings.set(values ?? {});
      return settings;
    });
    this.chosen = 0;
    this.tabs();
  }

  /** Hide the form, and show the reason. */
  refuse(reason) {
    say(the("asked"), reason);
    mark(the("ask"), "aria-disabled", "true");
    the("ask").hidden = true;
    the("alone").hidden = false;
  }
}
