/** The colours of probabilities: ten shades, from the style sheet, for cells of text (classes) and of maps (numbers). */
import { make } from "./dom.js";

export const SHADES = 10;

/** The shade of a probability: 0 for the lowest, 9 for the highest. */
export function shade(probability) {
  return Math.max(0, Math.min(SHADES - 1, Math.floor(probability * SHADES)));
}

/** Colours as [red, green, blue] for pixels and as text for strokes, read from the current theme. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const card = numbers(read("--card"));
  const shades = Array.from({ length: SHADES }, (_, place) => numbers(read(`--p${place}`)));
  return {
    shades,
    settled: shades.map((colour) => mixed(colour, card, 0.3)),
    open: numbers(read("--open")),
    card,
    unit: parseFloat(style.fontSize) / 16,
    inks: shades.map((colour) => (luminance(colour) > 0.18 ? "#000" : "#fff")),
    text: { card: read("--card"), ink: read("--ink"), line: read("--edge"), accent: read("--accent"), differ: read("--differ"), soft: read("--soft") },
  };
}

function numbers(colour) {
  const found = /^#(..)(..)(..)$/.exec(colour);
  return found ? found.slice(1).map((part) => parseInt(part, 16)) : [128, 128, 128];
}

function mixed(one, two, share) {
  return one.map((value, place) => Math.round(value * share + two[place] * (1 - share)));
}

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The legend: all shades, and the other marks. `settled` says how settled positions look, `difference` what a marked position means. */
export function legend(settled = "left of the line", difference = "differs") {
  const swatches = Array.from({ length: SHADES }, (_, place) => make("i", { class: `swatch p${place}` }));
  const item = (kind, text) => make("span", { class: "item" }, make("i", { class: `swatch ${kind}` }), text);
  return make(
    "div", { class: "legend", role: "group", "aria-label": "Legend" },
    make("span", { class: "item" }, "unmasked, probability 0", make("span", { class: "swatches", "aria-hidden": "true" }, ...swatches), "1"),
    item("open", "masked"), item("settled", `settled: ${settled}, can no longer change`), item("differs", difference),
  );
}
