"""autogen."""

import asyncio
import json

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    ModelFamily,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main() -> None:
    info = {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "family": ModelFamily.UNKNOWN,
        "structured_output": True,
    }
    client = OpenAIChatCompletionClient(model=MODEL, base_url=URL, model_info=info, max_tokens=TOKENS, max_retries=0)
    messages = [UserMessage(content=STORY, source="user")]
    chat = await client.create(messages)
    *deltas, last = [part async for part in client.create_stream(messages)]
    assert "".join(deltas) == last.content
    structured = Total.model_validate_json((await client.create(messages, json_output=Total)).content)
    tool = FunctionTool(add, "Add two numbers.", strict=True)
    called = await client.create(messages, tools=[tool], tool_choice="required")
    results = [
        FunctionExecutionResult(call_id=call.id, name=call.name, is_error=False, content=str(add(**json.loads(call.arguments))))
        for call in called.content
    ]
    history = [
        *messages,
        AssistantMessage(content=called.content, source="adder"),
        FunctionExecutionResultMessage(content=results),
    ]
    assert (await client.create(history, tools=[tool])).content
    tell(chat=chat.content, stream=last.content, structured=[structured.model_dump()], calls=CALLS)


asyncio.run(main())
