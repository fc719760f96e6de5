/**
 * JSON with seeds that are whole: they have up to 64 bits, and a number of JavaScript has 53. Longer ones are texts here. A
 * quotation mark within a text of JSON has a backslash in front of it, so that no answer or prompt is mistaken for a seed.
 */

const LONG = /([,{]\s*"seed"\s*:\s*)(\d{16,})/g;
const QUOTED = /([,{]"seed":)"(\d{16,})"/g;

/** The value of a JSON text. */
export function parsed(text) {
  return JSON.parse(text.replace(LONG, '$1"$2"'));
}

/** The JSON text of a value. */
export function written(value) {
  return JSON.stringify(value).replace(QUOTED, "$1$2");
}
