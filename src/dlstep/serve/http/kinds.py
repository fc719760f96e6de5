"""The formats of replies to bodies that are not those of completions or chats."""

from .anthropic import MessageReply
from .replies import Reply
from .responses import ResponseReply
from .schema import MessagesRequest, ResponsesRequest

KINDS: dict[type, type[Reply]] = {ResponsesRequest: ResponseReply, MessagesRequest: MessageReply}
