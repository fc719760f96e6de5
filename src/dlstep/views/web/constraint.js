/** The constraint of a request: a regular expression, choices or a JSON schema. */
import { make, say } from "./dom.js";

const KINDS = {
  none: { title: "none", doc: "The answer may be any text." },
  regex: { title: "regular expression", doc: "The whole answer matches this expression.", body: (text) => ({ regex: text }) },
  choice: { title: "choices", doc: "One choice per line. The answer is one of them.", body: (text) => ({ choice: text.split("\n").filter((line) => line) }) },
  json: { title: "JSON schema", doc: "The answer is JSON that conforms to this schema.", body: (text) => ({ json: text }) },
};

export class Constraint {
  constructor() {
    const rows = Object.entries(KINDS).map(([value, { title }]) => make("option", { value, text: title }));
    this.kind = make("select", { id: "constraint-kind", on: { change: () => this.show() } }, ...rows);
    this.text = make("textarea", { id: "constraint", rows: "3", spellcheck: "false", "aria-label": "Text of the constraint", "aria-describedby": "constraint-doc" });
    this.doc = make("p", { class: "doc", id: "constraint-doc" });
    const control = make("div", { class: "control choice" }, make("label", { for: "constraint-kind", text: "constraint" }), this.kind, this.text, this.doc);
    this.element = make("div", { class: "controls" }, control);
    this.show();
  }

  show() {
    this.text.hidden = this.kind.value === "none";
    say(this.doc, KINDS[this.kind.value].doc);
  }

  /** The name of the constraint if its text is missing, else null. */
  get missing() {
    return this.kind.value === "none" || this.text.value.trim() ? null : KINDS[this.kind.value].title;
  }

  /** The fields of a request body. */
  get body() {
    const { body } = KINDS[this.kind.value];
    return body ? { structured_outputs: body(this.text.value) } : {};
  }

  /** The contents of a link; undefined without a constraint. */
  get link() {
    return this.kind.value === "none" ? undefined : { kind: this.kind.value, text: this.text.value };
  }

  /** Set the constraint from the contents of a link. */
  set(given) {
    const known = given && Object.hasOwn(KINDS, given.kind) && typeof given.text === "string";
    this.kind.value = known ? given.kind : "none";
    this.text.value = known ? given.text : "";
    this.show();
  }
}
