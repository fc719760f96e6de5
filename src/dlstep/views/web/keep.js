/** Recordings (saved, opened, or embedded by `dlstep view`), and links. */
import { parsed } from "./json.js";
import { EMPTY, branch, fold, framesOf } from "./state.js";

const MOST_BYTES = 256 * 2 ** 20;

/** The recording of runs; each fork comes after its parent. */
export function recording(entries) {
  const runs = entries.map(({ run }) => ({ head: run.head, frames: framesOf(run), text: run.text, index: run.answer, ended: run.finish !== null }));
  return { dlstep_recording: 1, runs };
}

/** The runs of a recording, as { run, parent, index, label }; `parent` is an index in this list. Throws an Error with a readable message. */
export function runsOf(value) {
  if (!value || value.dlstep_recording !== 1 || !Array.isArray(value.runs)) {
    throw new Error("this file is not a recording: it has no dlstep_recording of version 1. To view a trace, run `dlstep view FILE`");
  }
  const found = [];
  value.runs.forEach((saved, place) => {
    check(saved, place);
    const from = saved.head.forked_from;
    const parent = from ? found.findIndex(({ run }) => run.head.request === from.request && run.answer === (from.index ?? 0)) : -1;
    const index = parent < 0 ? 0 : found[parent].run.moments.findIndex((moment) => moment.seq === from.seq);
    const joined = parent >= 0 && index >= 0;
    const start = joined ? branch(found[parent].run, index) : EMPTY;
    const run = { ...fold(saved.frames, start), text: String(saved.text ?? ""), answer: saved.index ?? 0 };
    found.push({ run: { ...run, head: saved.head, id: saved.head.request }, parent: joined ? parent : -1, index: Math.max(index, 0), label: String(saved.label ?? "") });
  });
  return found;
}

function check(saved, place) {
  const wrong = (what) => new Error(`run ${place} of this recording cannot be read: ${what}`);
  if (!saved || typeof saved !== "object" || !saved.head || typeof saved.head !== "object") throw wrong("it has no head");
  if (!Array.isArray(saved.frames) || !saved.frames.length) throw wrong("it has no frames");
  saved.frames.forEach((frame, number) => {
    const numbers = [frame?.seq, frame?.nfe, frame?.settled].every((value) => Number.isSafeInteger(value) && value >= 0);
    if (!numbers || !Array.isArray(frame.tokens) || !Array.isArray(frame.cells)) throw wrong(`frame ${number} lacks a field`);
    if (![...frame.tokens, ...frame.cells].every(isCell)) throw wrong(`frame ${number} has an invalid cell`);
    if (frame.settled < frame.tokens.length) throw wrong(`frame ${number} has more tokens than are settled`);
  });
}

function isCell(cell) {
  if (!Array.isArray(cell) || cell.length !== 4) return false;
  const [position, id, probability, text] = cell;
  const numbers = Number.isSafeInteger(position) && (id === null || Number.isSafeInteger(id)) && typeof probability === "number";
  return numbers && (text === null || typeof text === "string");
}

/** Let the browser save a text as a file. */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The runs of the recording in a file. Throws an Error with a readable message. */
export async function opened(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than 256 MiB`);
  const text = await file.text();
  let value;
  try {
    value = parsed(text);
  } catch {
    throw new Error(`${file.name} is not a recording: it is not JSON. To view a trace, run \`dlstep view FILE\``);
  }
  return runsOf(value);
}

/** The recording that is embedded in this page; null in the page of a server. */
export function embedded() {
  const element = document.getElementById("recording");
  return element ? parsed(element.textContent) : null;
}

/** The contents of a link as the fragment of an address. */
export function fragment(contents) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(contents)) fields.set(name, typeof value === "string" ? value : JSON.stringify(value));
  return `#${fields}`;
}

/** The contents of a link from the fragment of an address; null if it is not a link. */
export function contentsOf(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  if (!fields.has("prompt") && !fields.has("kept")) return null;
  const read = (name, fallback) => {
    try {
      return fields.has(name) ? JSON.parse(fields.get(name)) : fallback;
    } catch {
      return fallback;
    }
  };
  return { prompt: fields.get("prompt") ?? undefined, sampling: read("sampling", {}), runs: read("runs", []), kept: read("kept", []), constraint: read("constraint", null) };
}
