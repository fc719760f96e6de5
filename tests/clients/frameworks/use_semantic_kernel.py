"""semantic-kernel."""

import asyncio

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


async def main() -> None:
    service, kernel = OpenAIChatCompletion(MODEL, async_client=AsyncOpenAI(base_url=URL, max_retries=0)), Kernel()
    kernel.add_function("numbers", kernel_function(add))
    settings, history = OpenAIChatPromptExecutionSettings(max_tokens=TOKENS), ChatHistory()
    history.add_user_message(STORY)
    chat = await service.get_chat_message_content(history, settings)
    stream = [str(part) async for part in service.get_streaming_chat_message_content(history, settings)]
    typed = OpenAIChatPromptExecutionSettings(max_tokens=TOKENS, response_format=Total)
    structured = Total.model_validate_json(str(await service.get_chat_message_content(history, typed)))
    forced = OpenAIChatPromptExecutionSettings(max_tokens=TOKENS, function_choice_behavior=FunctionChoiceBehavior.Required())
    await service.get_chat_message_content(history, forced, kernel=kernel)
    tell(chat=str(chat), stream="".join(stream), structured=[structured.model_dump()], calls=CALLS)


asyncio.run(main())
