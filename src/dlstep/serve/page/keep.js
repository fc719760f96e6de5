/** Recordings: what `Save` writes, what is dropped or picked, what `dlstep view` puts into the page; and links. */
import { parsed } from "./json.js";
import { EMPTY, branch, fold, framesOf } from "./state.js";

const MOST_BYTES = 256 * 2 ** 20;

/** The recording of runs, a fork after the one it came from. */
export function recording(entries) {
  const runs = entries.map(({ run }) => ({ head: run.head, frames: framesOf(run), text: run.text, index: run.answer, ended: run.finish !== null }));
  return { dlstep_recording: 1, runs };
}

/** The runs of a recording, as { run, parent, index, label }; `parent` is a place in this list. Throws Error with a sentence. */
export function runsOf(value) {
  if (!value || value.dlstep_recording !== 1 || !Array.isArray(value.runs)) {
    throw new Error("this is no recording: it has no dlstep_recording of version 1. `dlstep view FILE` makes a page of an engine's trace");
  }
  const found = [];
  value.runs.forEach((given, place) => {
    check(given, place);
    const from = given.head.forked_from;
    const parent = from ? found.findIndex(({ run }) => run.head.request === from.request && run.answer === (from.index ?? 0)) : -1;
    const index = parent < 0 ? 0 : found[parent].run.moments.findIndex((moment) => moment.seq === from.seq);
    const joined = parent >= 0 && index >= 0;
    const start = joined ? branch(found[parent].run, index) : EMPTY;
    const run = { ...fold(given.frames, start), text: String(given.text ?? ""), answer: given.index ?? 0 };
    found.push({ run: { ...run, head: given.head, id: given.head.request }, parent: joined ? parent : -1, index: Math.max(index, 0), label: String(given.label ?? "") });
  });
  return found;
}

function check(given, place) {
  const wrong = (what) => new Error(`run ${place} of this recording cannot be read: ${what}`);
  if (!given || typeof given !== "object" || !given.head || typeof given.head !== "object") throw wrong("it has no head");
  if (!Array.isArray(given.frames) || !given.frames.length) throw wrong("it has no frames");
  given.frames.forEach((frame, number) => {
    const numbers = [frame?.seq, frame?.nfe, frame?.settled].every((value) => Number.isSafeInteger(value) && value >= 0);
    if (!numbers || !Array.isArray(frame.tokens) || !Array.isArray(frame.cells)) throw wrong(`frame ${number} lacks a field`);
    if (![...frame.tokens, ...frame.cells].every(isCell)) throw wrong(`frame ${number} has a cell that is none`);
    if (frame.settled < frame.tokens.length) throw wrong(`frame ${number} settles more tokens than there are`);
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

/** The recording in a file. Throws Error with a sentence. */
export async function opened(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than 256 MiB`);
  const text = await file.text();
  let value;
  try {
    value = parsed(text);
  } catch {
    throw new Error(`${file.name} is no recording: it is not JSON. \`dlstep view FILE\` makes a page of an engine's trace`);
  }
  return runsOf(value);
}

/** The recording that this page was made with; null in the page of a server. */
export function embedded() {
  const element = document.getElementById("recording");
  return element ? parsed(element.textContent) : null;
}

/** A link's contents as the fragment of an address, and back; null where there is none. */
export function fragment(contents) {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(contents)) told.set(name, typeof value === "string" ? value : JSON.stringify(value));
  return `#${told}`;
}

export function contentsOf(hash) {
  const told = new URLSearchParams(hash.replace(/^#/, ""));
  if (!told.has("prompt") && !told.has("kept")) return null;
  const read = (name, fallback) => {
    try {
      return told.has(name) ? JSON.parse(told.get(name)) : fallback;
    } catch {
      return fallback;
    }
  };
  return { prompt: told.get("prompt") ?? undefined, sampling: read("sampling", {}), runs: read("runs", []), kept: read("kept", []) };
}
