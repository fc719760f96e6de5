"""llama-index."""

from asked import CALLS, MODEL, STORY, TOKENS, URL, Total, add, tell
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model=MODEL, api_base=URL, is_chat_model=True, is_function_calling_model=True, max_tokens=TOKENS, max_retries=0,
    temperature=0,
    should_use_structured_outputs=True,
)  # fmt: skip
messages = [ChatMessage(role="user", content=STORY)]
chat = llm.chat(messages).message.content
stream = "".join([part.delta or "" for part in llm.stream_chat(messages)])
structured = [llm.as_structured_llm(Total).chat(messages).raw.model_dump()]
tool = FunctionTool.from_defaults(add)
llm.predict_and_call([tool], user_msg=STORY, tool_required=True)
tell(chat=chat, stream=stream, structured=structured, calls=CALLS)
