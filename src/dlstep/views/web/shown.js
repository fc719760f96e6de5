/** Display of texts from answers: invisible characters, and those that reorder text, are replaced by visible names. */

const BLANKS = new Map([["\t", "⇥"], ["\r", "␍"]]);
// Control characters, direction marks, separators, invisible operators and lone surrogates: all that hide or reorder text.
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

/** The text with hidden characters replaced by names; line breaks stay. */
export function shown(text) {
  return String(text ?? "").replace(HIDDEN, named);
}

/** A token on one line, with visible spaces and line breaks. An empty token is the end of the answer. */
export function word(text) {
  if (text === null || text === undefined) return "masked";
  if (text === "") return "∎";
  return shown(text).replaceAll("\n", "↵").replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length));
}

/** At most `most` characters of a text. */
export function short(text, most = 48) {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

/** A number with at most `digits` decimals. */
export function figure(value, digits = 2) {
  return Number.isInteger(value) ? String(value) : Number(value).toFixed(digits);
}

/** A probability, never rounded up to one. */
export function chance(value) {
  return value >= 1 ? "1" : (Math.floor(value * 1000) / 1000).toFixed(3);
}

/** A count in at most four characters: 999, 152k. */
export function brief(count) {
  return count < 1000 ? String(count) : count < 1e6 ? `${Math.floor(count / 1000)}k` : `${Math.floor(count / 1e6)}M`;
}

/** A number with its noun: 1 token, 3 tokens, 2 forward passes. */
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}
