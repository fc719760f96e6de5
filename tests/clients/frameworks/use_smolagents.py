"""smolagents."""

import json

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from smolagents import OpenAIModel, tool

model = OpenAIModel(MODEL, api_base=URL, max_tokens=TOKENS, client_kwargs={"max_retries": 0})
messages = [{"role": "user", "content": [{"type": "text", "text": STORY}]}]
chat = model.generate(messages).content
stream = "".join([part.content or "" for part in model.generate_stream(messages)])
form = {"type": "json_schema", "json_schema": {"name": "total", "schema": Total.model_json_schema()}}
structured = Total.model_validate_json(model.generate(messages, response_format=form).content)
adder = tool(add)
for call in model.generate(messages, tools_to_call_from=[adder]).tool_calls:
    adder(**json.loads(call.function.arguments))
tell(chat=chat, stream=stream, structured=[structured.model_dump()], calls=CALLS)
