"""pydantic-ai: the model of chat completions and that of responses."""

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from pydantic_ai import Agent, ModelSettings, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

for kind in (OpenAIChatModel, OpenAIResponsesModel):
    model = kind(MODEL, provider=OpenAIProvider(base_url=URL), settings=ModelSettings(max_tokens=TOKENS))
    agent = Agent(model)
    chat = agent.run_sync(STORY)
    stream = agent.run_stream_sync(STORY)
    streamed = "".join(stream.stream_text(delta=True))
    structured = [agent.run_sync(STORY, output_type=form(Total)).output.model_dump() for form in (NativeOutput, ToolOutput)]
    assert agent.run_sync(STORY, output_type=add).output == sum(CALLS[-1].values())
    tell(chat=chat.output, stream=streamed, structured=structured, calls=CALLS)
