/** The options of one request: the options of the strategy, the rule, and its options. */
import { Controls } from "./controls.js";
import { fill, make } from "./dom.js";

let lists = 0;

const plain = (name) => String(name ?? "").replaceAll("_", "").toLowerCase();

export class Settings {
  /** `known` is the answer of `/v1/options`; `start` has the current options if they are not the server's defaults. */
  constructor(known, start = {}, changed = () => {}) {
    this.known = known;
    this.start = start;
    this.changed = changed;
    const may = (option) => option.per_request && option.kind !== "integers" && option.name !== "rule";
    this.strategy = new Controls(known.strategy.options.filter(may), start, changed);
    this.rules = known.rules.filter((rule) => rule.per_request !== false);
    this.first = this.ruleNamed(start.rule ?? known.rule)?.name ?? "";
    this.place = make("div", {});
    this.about = make("p", { class: "doc" });
    this.list = this.rules.length ? this.ruleList() : null;
    const strategy = make("details", {}, make("summary", { text: `Strategy ${known.strategy.name}` }), make("p", { class: "doc", text: known.strategy.doc ?? "" }), this.strategy.element);
    const id = this.list?.id;
    const rule = this.list && make("div", { class: "control choice" }, make("label", { for: id, text: "rule" }), this.list, this.about);
    this.element = make("div", { class: "settings" }, rule, this.place, strategy);
    this.pick(this.first);
  }

  ruleList() {
    const rows = this.rules.map((rule) => make("option", { value: rule.name, text: rule.name.replaceAll("_", " ") }));
    const list = make("select", { id: `rule-${(lists += 1)}` }, ...rows);
    list.addEventListener("change", () => {
      this.pick(list.value);
      this.changed("rule", list.value);
    });
    return list;
  }

  /** A rule by its name or the name of its class. */
  ruleNamed(name) {
    return this.known.rules.find((rule) => plain(rule.name) === plain(name)) ?? null;
  }

  pick(name) {
    const rule = this.ruleNamed(name);
    this.chosen = rule?.name ?? this.first;
    if (this.list) this.list.value = this.chosen;
    const options = (rule?.options ?? []).filter((option) => option.per_request !== false && option.kind !== "integers" && option.name !== "rule");
    this.rule = new Controls(options, this.chosen === this.first ? this.start : {}, this.changed);
    this.about.textContent = rule?.doc ?? "";
    fill(this.place, this.rule.element);
  }

  /** The changed options, as in a request. */
  values() {
    const rule = this.chosen && this.chosen !== this.first ? { rule: this.chosen } : {};
    return { ...this.strategy.values(), ...rule, ...this.rule.values() };
  }

  set(values) {
    if (values.rule !== undefined) this.pick(values.rule);
    this.strategy.set(values);
    this.rule.set(values);
  }

  /** A short title: the rule and the changed options. */
  get words() {
    const { rule, ...rest } = this.values();
    const options = Object.entries(rest).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
    return [...(rule || this.chosen ? [(rule ?? this.chosen).replaceAll("_", " ")] : []), ...options].join(", ");
  }
}
