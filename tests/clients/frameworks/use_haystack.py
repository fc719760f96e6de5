"""haystack."""

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function

generator = OpenAIChatGenerator(
    model=MODEL, api_base_url=URL, generation_kwargs={"max_completion_tokens": TOKENS}, max_retries=0
)
messages, parts, tool = [ChatMessage.from_user(STORY)], [], create_tool_from_function(add)
chat = generator.run(messages)["replies"][0].text
streamed = generator.run(messages, streaming_callback=lambda chunk: parts.append(chunk.content))["replies"][0].text
assert streamed == "".join(parts)
typed = generator.run(messages, generation_kwargs={"response_format": Total})["replies"][0].text
(called,) = generator.run(messages, tools=[tool], generation_kwargs={"tool_choice": "required"})["replies"]
results = [ChatMessage.from_tool(str(tool.invoke(**call.arguments)), call) for call in called.tool_calls]
assert generator.run([*messages, called, *results])["replies"][0].text
tell(chat=chat, stream=streamed, structured=[Total.model_validate_json(typed).model_dump()], calls=CALLS)
