"""inspect-ai."""

import asyncio

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from inspect_ai.model import ChatMessageUser, GenerateConfig, ResponseSchema, execute_tools, get_model
from inspect_ai.tool import ToolDef
from inspect_ai.util import json_schema


async def counted(first: int, second: int) -> str:
    return str(add(first, second))


adder = ToolDef(counted, "add", "Add two numbers.", {"first": "A number.", "second": "Another."}).as_tool()


async def main() -> None:
    config, messages = GenerateConfig(max_tokens=TOKENS, max_retries=0), [ChatMessageUser(content=STORY)]
    for responses in (False, True):
        model, streaming = [
            get_model(f"openai/{MODEL}", config=config, base_url=URL, responses_api=responses, streaming=streams)
            for streams in (False, True)
        ]
        chat, stream = await model.generate(messages), await streaming.generate(messages)
        form = GenerateConfig(response_schema=ResponseSchema(name="total", json_schema=json_schema(Total)))
        structured = Total.model_validate_json((await model.generate(messages, config=form)).completion)
        called = await model.generate(messages, tools=[adder], tool_choice="any")
        results, _ = await execute_tools([*messages, called.message], [adder])
        assert (await model.generate([*messages, called.message, *results], tools=[adder])).completion
        tell(chat=chat.completion, stream=stream.completion, structured=[structured.model_dump()], calls=CALLS)


asyncio.run(main())
