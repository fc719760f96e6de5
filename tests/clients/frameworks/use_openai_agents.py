"""openai-agents, with its default, the responses, and with chat completions."""

import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from openai import AsyncOpenAI


async def main() -> None:
    client = AsyncOpenAI(base_url=URL, max_retries=0)
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        model, settings = kind(MODEL, client), ModelSettings(max_tokens=TOKENS)
        agent = Agent("adder", model=model, model_settings=settings)
        chat = await Runner.run(agent, STORY)
        stream = Runner.run_streamed(agent, STORY)
        deltas = [
            event.data.delta
            async for event in stream.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
        assert "".join(deltas) == stream.final_output
        structured = await Runner.run(agent.clone(output_type=Total), STORY)
        forced = ModelSettings(max_tokens=TOKENS, tool_choice="required")
        await Runner.run(agent.clone(tools=[function_tool(add)], model_settings=forced), STORY)
        tell(chat=chat.final_output, stream="".join(deltas), structured=[structured.final_output.model_dump()], calls=CALLS)


asyncio.run(main())
