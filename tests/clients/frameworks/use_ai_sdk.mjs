// The AI SDK: its default model, of responses, and that of chat completions. NODE_PATH is the folder of its packages.
import { createRequire } from "node:module";

const from = createRequire(import.meta.url);
const { generateText, Output, stepCountIs, streamText, tool } = from("ai");
const { createOpenAI } = from("@ai-sdk/openai");
const { z } = from("zod");

const [url, name] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${url}/v1` });
const prompt = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?";
const asked = { prompt, maxOutputTokens: 100, maxRetries: 0, providerOptions: { openai: { store: false } } };
const things = z.object({ count: z.number().int(), kind: z.enum(["shells", "eggs"]) });
const total = z.object({ things: z.array(things), most: things, sure: z.boolean() });
const calls = [];
const add = tool({
  description: "Add two numbers.",
  inputSchema: z.object({ first: z.number().int(), second: z.number().int() }),
  execute: (given) => {
    calls.push(given);
    return given.first + given.second;
  },
});

for (const model of [openai(name), openai.chat(name)]) {
  const chat = await generateText({ model, ...asked });
  let stream = "";
  for await (const delta of streamText({ model, ...asked }).textStream) stream += delta;
  const { output } = await generateText({ model, ...asked, output: Output.object({ schema: total }) });
  const forced = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" });
  await generateText({ model, ...asked, tools: { add }, prepareStep: forced, stopWhen: stepCountIs(2) });
  console.log(JSON.stringify({ chat: chat.text, stream, structured: [output], calls }));
}
