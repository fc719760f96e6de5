/** The server: its options, streams of frames, forks. The API key lives in this module's memory, and nowhere else. */

import { parsed, written } from "./json.js";

let key = "";

/** Use this API key from now on. */
export function useKey(given) {
  key = given;
}

/** An answer of the server that is no answer. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function asked(path, given = {}) {
  let response;
  try {
    response = await fetch(path, { headers: headers(), cache: "no-store", ...given });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  let told = "";
  try {
    told = (await response.json()).error?.message ?? "";
  } catch {
    told = response.statusText;
  }
  throw new ServerError(response.status, told || `the server answered ${response.status}`);
}

/** Options of the strategy and its rules, examples, and what the model is called. */
export async function options() {
  return (await asked("v1/options")).json();
}

/** The recording of a request that the server still keeps. */
export async function kept(id) {
  return parsed(await (await asked(`v1/requests/${encodeURIComponent(id)}/steps`)).text());
}

/** Ask the server to end a request with what is settled of it. */
export async function cancel(id) {
  await asked(`v1/requests/${encodeURIComponent(id)}/cancel`, { method: "POST", body: "{}" });
}

/** Answer a prompt or a conversation; `take(frame, text)` is called for every frame. Resolves when the answer has ended. */
export function generate(body, take, signal) {
  const path = body.messages ? "v1/chat/completions" : "v1/completions";
  const wanted = { ...body, stream: true, dlstep: { ...body.dlstep, stream: "steps" } };
  return follow(path, wanted, take, signal);
}

/** Take a kept request again from the frame `seq` on, in another way. */
export function fork(id, body, take, signal) {
  return follow(`v1/requests/${encodeURIComponent(id)}/fork`, { stream: true, ...body }, take, signal);
}

async function follow(path, body, take, signal) {
  const response = await asked(path, { method: "POST", body: written(body), signal });
  for await (const event of events(response.body)) {
    if (event.error) throw new ServerError(500, event.error.message ?? "the answer broke off");
    const [choice] = event.choices ?? [];
    const text = choice?.text ?? choice?.delta?.content ?? "";
    if (event.dlstep) take(event.dlstep, text, event.id);
  }
}

/** The events of a body in the form of server-sent events, as values. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = dataOf(part);
      if (data === "[DONE]") return;
      if (data) yield parsed(data);
    }
  }
}

function dataOf(part) {
  return part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
}
