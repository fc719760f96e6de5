/** Controls for the options that the server describes: sliders, switches, lists. */
import { make } from "./dom.js";
import { short } from "./shown.js";

let made = 0;

/** The text of a value in a control: a number without trailing zeros. */
function shownValue(option, value) {
  return value === null || value === undefined ? "" : option.kind === "number" ? String(Number(Number(value).toFixed(4))) : String(value);
}

/** A group of controls. `values()` returns only values that differ from `start`; `changed` is called after every change. */
export class Controls {
  constructor(options, start = {}, changed = () => {}) {
    this.options = options;
    this.changed = changed;
    this.start = Object.fromEntries(options.map((option) => [option.name, start[option.name] ?? option.default]));
    this.current = { ...this.start };
    this.parts = options.map((option) => this.part(option));
    this.element = make("div", { class: "controls" }, ...this.parts.map((part) => part.element));
  }

  /** The options that were changed, by name. */
  values() {
    const changed = this.options.filter(({ name, optional }) => this.current[name] !== this.start[name] && (optional || this.current[name] !== null));
    return Object.fromEntries(changed.map(({ name }) => [name, this.current[name]]));
  }

  /** Set values; unknown names are ignored. */
  set(values) {
    for (const part of this.parts) {
      if (!Object.hasOwn(values, part.option.name)) continue;
      this.current[part.option.name] = values[part.option.name];
      part.show(values[part.option.name]);
    }
  }

  put(option, value) {
    this.current[option.name] = value;
    this.changed(option.name, value);
  }

  part(option) {
    const id = `control-${(made += 1)}`;
    const value = this.current[option.name];
    const make_ = { boolean: switched, choice: listed, number: slid, integer: slid }[option.kind] ?? typed;
    const { parts, show } = make_(option, id, value, (next) => this.put(option, next));
    const label = make("label", { for: id, text: option.name.replaceAll("_", " ") });
    const doc = option.doc ? make("p", { class: "doc", id: `${id}-doc`, text: option.doc }) : null;
    return { option, show, element: make("div", { class: `control ${option.kind}` }, label, ...parts, doc) };
  }
}

function described(option, id) {
  return option.doc ? { "aria-describedby": `${id}-doc` } : {};
}

function switched(option, id, value, put) {
  const box = make("input", { type: "checkbox", id, ...described(option, id), on: { change: () => put(box.checked) } });
  box.checked = Boolean(value);
  return { parts: [box], show: (next) => { box.checked = Boolean(next); } };
}

function listed(option, id, value, put) {
  const rows = option.choices.map((choice) => make("option", { value: String(choice), text: short(String(choice), 60) }));
  const list = make("select", { id, ...described(option, id), on: { change: () => put(option.choices[list.selectedIndex]) } }, ...rows);
  list.value = String(value);
  return { parts: [list], show: (next) => { list.value = String(next); } };
}

function typed(option, id, value, put) {
  const field = make("input", { type: "text", id, spellcheck: "false", autocomplete: "off", ...described(option, id) });
  field.addEventListener("change", () => put(field.value));
  field.value = shownValue(option, value);
  return { parts: [field], show: (next) => { field.value = shownValue(option, next); } };
}

/** The bounds of an option's slider; null if one end is unbounded or the range is too large. */
export function slide(option) {
  const { least, most } = option;
  if (least === null || least === undefined || most === null || most === undefined || most - least > 1e6) return null;
  const whole = option.kind === "integer";
  const step = whole ? 1 : most - least <= 1 ? 0.01 : (most - least) / 100;
  return { min: option.open_least ? least + step : least, max: option.open_most ? most - step : most, step };
}

function slid(option, id, value, put) {
  const bounds = slide(option);
  const field = make("input", { type: "number", id, step: option.kind === "integer" ? "1" : "any", ...described(option, id) });
  if (option.least !== null && option.least !== undefined) field.min = option.least;
  if (option.most !== null && option.most !== undefined) field.max = option.most;
  const range = bounds && make("input", { type: "range", "aria-label": `${option.name.replaceAll("_", " ")}, slider`, ...bounds });
  const show = (next) => {
    field.value = shownValue(option, next);
    if (range) range.value = next;
  };
  const take = (text) => {
    if (text === "" && option.optional) put(null);
    if (text === "" || !Number.isFinite(Number(text))) return;
    const next = option.kind === "integer" ? Math.round(Number(text)) : Number(text);
    show(next);
    put(next);
  };
  field.addEventListener("change", () => take(field.value));
  range?.addEventListener("input", () => take(range.value));
  show(value);
  return { parts: range ? [range, field] : [field], show };
}
