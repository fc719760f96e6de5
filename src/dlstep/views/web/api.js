/** Requests to the server: options, streams of frames, forks. Only the memory of this module holds the API key. */

import { parsed, written } from "./json.js";

let key = "";

/** Use this API key from now on. */
function useKey(next) {
  key = next;
}

/** An error response, or a failure to reach the server (status 0). */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function send(path, settings = {}) {
  let response;
  try {
    response = await fetch(path, { headers: headers(), cache: "no-store", ...settings });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not respond. Is it still running?");
  }
  if (response.ok) return response;
  let message = "";
  try {
    message = (await response.json()).error?.message ?? "";
  } catch {
    message = response.statusText;
  }
  throw new ServerError(response.status, message || `the server returned status ${response.status}`);
}

/** Return the options of the strategy and its rules, example prompts, and the name of the model. */
async function options() {
  return (await send("v1/options")).json();
}

/** Return the server's description of its model; empty if it has none. */
async function description() {
  const { data } = await (await send("v1/models")).json();
  return String(data?.[0]?.description ?? "");
}

/** Return the recording of a request that the server still keeps. */
async function kept(id) {
  return parsed(await (await send(`v1/requests/${encodeURIComponent(id)}/steps`)).text());
}

/** Ask the server to end a request with its settled tokens. */
async function cancel(id) {
  await send(`v1/requests/${encodeURIComponent(id)}/cancel`, { method: "POST", body: "{}" });
}

/** Answer a prompt or a conversation. Calls `take(frame, text)` for each frame; resolves when the answer has ended. */
function generate(body, take, signal) {
  const path = body.messages ? "v1/chat/completions" : "v1/completions";
  const request = { ...body, stream: true, dlstep: { ...body.dlstep, stream: "steps" } };
  return follow(path, request, take, signal);
}

/** Continue a kept request from the frame `body.seq` with other options. */
function fork(id, body, take, signal) {
  return follow(`v1/requests/${encodeURIComponent(id)}/fork`, { stream: true, ...body }, take, signal);
}

async function follow(path, body, take, signal) {
  const response = await send(path, { method: "POST", body: written(body), signal });
  for await (const event of events(response.body)) {
    if (event.error) throw new ServerError(500, event.error.message ?? "the stream failed");
    const [choice] = event.choices ?? [];
    const text = choice?.text ?? choice?.delta?.content ?? "";
    if (event.dlstep) take(event.dlstep, text, event.id);
  }
}

/** Yield the server-sent events of a body, parsed. */
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

export const api = { cancel, description, fork, generate, kept, options, useKey };
