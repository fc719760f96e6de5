/**
 * JSON with exact seeds: seeds have up to 64 bits, numbers of JavaScript only 53. Longer seeds are therefore strings here. The
 * patterns cannot match inside a JSON string, where every quotation mark follows a backslash.
 */

const UNQUOTED = /([,{]\s*"seed"\s*:\s*)(\d{16,})/g;
const QUOTED = /([,{]"seed":)"(\d{16,})"/g;

/** Parse a JSON text. */
export function parsed(text) {
  return JSON.parse(text.replace(UNQUOTED, '$1"$2"'));
}

/** Return the JSON text of a value. */
export function written(value) {
  return JSON.stringify(value).replace(QUOTED, "$1$2");
}
