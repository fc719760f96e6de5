/** Text of answers made fit to be looked at: what is invisible or moves other text is named instead of obeyed. */

const BLANKS = new Map([["\t", "⇥"], ["\r", "␍"]]);
// Controls, marks of direction, separators, invisible operators, halves of pairs: everything that hides or reorders text.
const HIDDEN = new RegExp(
  "[\\u0000-\\u0009\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
    "\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]", "gu",
);

function named(character) {
  const code = character.codePointAt(0);
  if (BLANKS.has(character)) return BLANKS.get(character);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** The text with hidden characters named; line breaks stay. */
export function shown(text) {
  return String(text ?? "").replace(HIDDEN, named);
}

/** A token in one line: blanks and line breaks are marks. An empty one is the end of the answer. */
export function word(text) {
  if (text === null || text === undefined) return "undecided";
  if (text === "") return "∎";
  return shown(text).replaceAll("\n", "↵").replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length));
}

/** At most `most` characters of a text. */
export function short(text, most = 48) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

/** A number as a person reads it. */
export function figure(value, digits = 2) {
  return Number.isInteger(value) ? String(value) : Number(value).toFixed(digits);
}

/** A probability, never rounded up to one. */
export function chance(value) {
  return value >= 1 ? "1" : (Math.floor(value * 1000) / 1000).toFixed(3);
}

/** A count with its noun. */
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
