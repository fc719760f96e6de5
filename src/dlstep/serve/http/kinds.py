"""The classes of replies to bodies other than those of completions and chats."""

from .anthropic import MessageReply
from .replies import Reply
from .responses import ResponseReply
from .schema import MessagesRequest, ResponsesRequest

KINDS: dict[type, type[Reply]] = {ResponsesRequest: ResponseReply, MessagesRequest: MessageReply}
