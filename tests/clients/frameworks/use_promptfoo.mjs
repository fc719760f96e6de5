// promptfoo evaluates a prompt with chat completions and responses: a chat, a structured answer and a call. It has no streams.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const [url, name] = process.argv.slice(2);
const integers = (...names) => Object.fromEntries(names.map((each) => [each, { type: "integer" }]));
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });
const things = object({ ...integers("count"), kind: { enum: ["shells", "eggs"] } });
const total = object({ things: { type: "array", items: things }, most: things, sure: { type: "boolean" } });
const add = { name: "add", parameters: object(integers("first", "second")) };
const form = { name: "total", schema: total };
const shared = { apiBaseUrl: `${url}/v1`, temperature: 0, max_tokens: 100, max_output_tokens: 100 };
const ways = (kind, json_schema, tool) =>
  [{}, { response_format: { type: "json_schema", ...json_schema } }, { tools: [tool], tool_choice: "required" }].map((more) => ({
    id: `openai:${kind}:${name}`,
    config: { ...shared, ...more },
  }));
const prompts = ["Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"];
const chats = ways("chat", { json_schema: form }, { type: "function", function: add });
const responses = ways("responses", form, { type: "function", ...add });
writeFileSync("promptfoo.json", JSON.stringify({ prompts, providers: [...chats, ...responses] }));
const command = ["eval", "-c", "promptfoo.json", "-o", "found.json", "--no-cache", "--no-write", "--no-progress-bar"];
const { status } = spawnSync(`${process.env.NODE_PATH}/.bin/promptfoo`, command, { stdio: ["ignore", 2, 2] });
const { results } = JSON.parse(readFileSync("found.json")).results;
const found = results.sort((one, other) => one.promptIdx - other.promptIdx).map(({ response, error }) => response?.output ?? error);
const read = (output) => (typeof output === "string" ? JSON.parse(output) : output);
const argued = (call) => JSON.parse((call.function ?? call).arguments);
for (const [chat, structured, called] of [found.slice(0, 3), found.slice(3)])
  console.log(JSON.stringify({ chat, stream: null, structured: [structured], calls: [read(called)].flat().map(argued) }));
process.exit(status);
