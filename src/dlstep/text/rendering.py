"""Chat templates, rendered in bounded time and memory: a template is a program, and a checkpoint folder brings it.

The language is that of transformers: Jinja in its sandbox, with `raise_exception`, `strftime_now`, `tojson`, `namespace`,
`break`, `continue` and `generation`. Three bounds are added. The clock is read at every turn of a loop, every call and every
filter. What one operation makes, and what all of them make together, is bounded before it is made. Counts in arguments and
formats are bounded.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, wraps
from threading import local
from time import monotonic
from typing import Any, ClassVar

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

RENDER_SECONDS = 10.0
LONGEST_TEMPLATE = 1 << 18  # characters
LARGEST_VALUE = 1 << 23  # characters and items of one value
LARGEST_TOTAL = 1 << 28  # of all values that a rendering makes
LARGEST_COUNT = 10_000  # in an argument or a format
LARGEST_POWER = 4096  # bits of an integer
END_OF_LAST = "CONTINUE_FINAL_MESSAGE_TAG "  # marks where an answer continues the last message
REASONING = ("reasoning_content", "thinking", "reasoning")
WIDTH = re.compile(r"\d{5}")
# Filters that take as long for a large value as for a small one, and make nothing.
QUICK = ("length", "count", "first", "default", "d", "attr")
KNOWN = (
    TemplateError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    SyntaxError,
)


class OverBudget(TemplateError):
    """A rendering that takes too long or makes too much."""


class Budget(local):
    """How long a rendering may still take, and how much it may still make; each thread has its own."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin to count."""
        self.end, self.left = monotonic() + RENDER_SECONDS, LARGEST_TOTAL

    def tick(self) -> None:
        """Raise OverBudget when the time is over."""
        if monotonic() > self.end:
            raise OverBudget(f"it takes more than {RENDER_SECONDS:g} seconds")

    def charge(self, size: int) -> None:
        """Count what is about to be made. Raises OverBudget for too much, at once or in all."""
        self.tick()
        self.left -= size
        if size > LARGEST_VALUE or self.left < 0:
            raise OverBudget(f"it makes more than {LARGEST_VALUE if size > LARGEST_VALUE else LARGEST_TOTAL} characters")


class SafeNamespace(Namespace):
    """Variables that a loop may change. No name begins with an underscore, and its text says nothing of its values."""

    def __init__(*args: Any, **values: Any) -> None:  # so that `namespace(self=...)` works, too
        named = dict(*args[1:], **values)
        for name in named:
            check_name(name)
        Namespace.__init__(args[0], named)

    def __setitem__(self, name: str, value: Any) -> None:
        check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def check_name(name: object) -> None:
    """Raise SecurityError for a name with an underscore in front."""
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace takes no name with an underscore in front, got {name!r}")


def size_of(value: object) -> int:
    """Characters and items of a value, those inside it included. Raises OverBudget beyond the largest value."""
    if isinstance(value, str | bytes):
        return len(value)
    size, waiting = 0, [value]
    while waiting:
        found = waiting.pop()
        size += 1
        if isinstance(found, str | bytes):
            size += len(found)
        elif isinstance(found, Mapping):
            waiting += [*found.keys(), *found.values()]
            size += len(found)
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += found
        elif isinstance(found, int):
            size += found.bit_length() // 8
        if size + len(waiting) > LARGEST_VALUE:
            raise OverBudget(f"it makes a value of more than {LARGEST_VALUE} characters")
    return size


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox of Jinja with a budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation], finalize=self.whole)
        self.budget = Budget()
        self.filters["tojson"] = tojson
        plain = {name: each for name, each in self.filters.items() if name not in QUICK}
        self.filters |= {name: self.bounded(each) for name, each in plain.items()}
        self.filters |= {"bounded_loop": self.loop, "bounded_text": self.text, "bounded_value": self.whole}
        self.globals = {
            "range": self.globals["range"],
            "dict": dict_of,
            "namespace": SafeNamespace,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
        }

    def _generate(self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False) -> str:
        """Python for a template, with the clock in every loop and a measure at everything that can grow."""
        for loop in source.find_all(nodes.For):
            loop.iter = marked(loop.iter, "bounded_loop")
        for joined in source.find_all(nodes.Concat):
            joined.nodes = [marked(node, "bounded_text") for node in joined.nodes]
        wrapped: set[int] = set()
        for parent in [source, *source.find_all(nodes.Node)]:
            for field, value in list(parent.iter_fields()):
                each = value if isinstance(value, list) else [value]
                made = [self._measured(node, wrapped) for node in each]
                if any(new is not old for new, old in zip(made, each, strict=True)):
                    setattr(parent, field, made if isinstance(value, list) else made[0])
        source.set_environment(self)
        return super()._generate(source, name, filename, defer_init)

    def _measured(self, node: Any, wrapped: set[int]) -> Any:
        """A list, tuple or mapping that a template writes down, with a measure around it."""
        literal = isinstance(node, nodes.List | nodes.Dict) or (isinstance(node, nodes.Tuple) and node.ctx == "load")
        if not literal or id(node) in wrapped:
            return node
        wrapped.add(id(node))
        return marked(node, "bounded_value")

    def loop(self, values: Any) -> Any:
        """The values one by one, with a look at the clock at each."""
        if isinstance(values, Undefined):
            return values
        return self._turns(iter(values))

    def _turns(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            self.budget.tick()
            yield value

    def text(self, value: Any) -> str:
        """A part of a concatenation, counted."""
        self.budget.charge(size_of(value))
        made = str(value)
        self.budget.charge(len(made))
        return made

    def whole(self, value: Any) -> Any:
        """A value that is written down or printed, counted."""
        self.budget.charge(size_of(value))
        return value

    def concat(self, parts: Iterable[str]) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The parts as one text."""
        found: list[str] = []
        for part in parts:
            self.budget.charge(len(part))
            found.append(part)
        return "".join(found)

    def check(self, value: Any, others: list[Any]) -> None:
        """Raise OverBudget where a text or a list, combined with other values, could grow beyond bounds."""
        self.budget.tick()
        counts = [abs(other) for other in others if isinstance(other, int | float)]
        if any(not count <= LARGEST_COUNT for count in counts):
            raise OverBudget(f"it gives a count above {LARGEST_COUNT}")
        most = max([1, *map(int, counts), *map(size_of, others)])
        if max(size_of(value), 1) * most > 16 * LARGEST_VALUE:
            raise OverBudget(f"it makes a value of more than {LARGEST_VALUE} characters")

    def bounded(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose arguments and result are counted."""

        @wraps(made)
        def counted(*args: Any, **named: Any) -> Any:
            own = [value for value in args if not isinstance(value, Environment | Context | nodes.EvalContext)]
            self.check(own[0] if own else None, [*own[1:], *named.values()])
            if made.__name__ == "do_format":
                check_formats(own[:1])
            return self.made(made(*args, **named))

        return counted

    def made(self, value: Any) -> Any:
        """The result of a call or a filter, counted; what is made step by step is counted then."""
        if isinstance(value, str | list | tuple | Mapping):
            self.budget.charge(len(value))
        return value

    def call(self, context: Context, obj: Any, /, *args: Any, **named: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A call in a template: of a macro, of a global, or of a method."""
        self.budget.tick()
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes):
            self.check(owner, [*args, *named.values()])
            check_formats([owner] if method.__name__ in ("format", "format_map") else [])
        elif obj in (dict_of, SafeNamespace):
            self.whole([*args, named])
        return self.made(super().call(context, obj, *args, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operation that can make something large of something small."""
        self.budget.tick()
        if operator == "**":
            bits = left.bit_length() * abs(right) if isinstance(left, int) and isinstance(right, int) else 0
            if bits > LARGEST_POWER:
                raise OverBudget(f"it makes an integer of more than {LARGEST_POWER} bits")
        elif operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                if left.bit_length() + right.bit_length() > LARGEST_POWER:
                    raise OverBudget(f"it makes an integer of more than {LARGEST_POWER} bits")
            else:
                times = [abs(value) for value in (left, right) if isinstance(value, int)]
                self.budget.charge(size_of(left) * size_of(right) * max(times, default=1) if times else 0)
        elif operator == "+":
            self.budget.charge(size_of(left) + size_of(right) if not isinstance(left, int | float) else 0)
        elif isinstance(left, str | bytes):
            check_formats([left])
            given = list(right) if isinstance(right, tuple) else [right]
            # A number is printed; only a star takes it as a width.
            self.check(left, given if "*" in as_text(left) else list(filter(is_no_number, given)))
        return super().call_binop(context, operator, left, right)


class Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it prints its body."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> Any:
        """The body, as a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("spoken"), [], [], body).set_lineno(line)

    def spoken(self, caller: Callable[[], str]) -> str:
        """The text of the body."""
        return caller()


def is_no_number(value: object) -> bool:
    """Whether a value is something else than a number."""
    return not isinstance(value, int | float)


def marked(node: Any, name: str) -> nodes.Expr:
    """An expression with a filter around it."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def as_text(text: str | bytes) -> str:
    """A format as text, byte by byte if it is none."""
    return text if isinstance(text, str) else text.decode("latin-1")


def check_formats(texts: list[Any]) -> None:
    """Raise OverBudget for a format with a width that is too large."""
    for text in texts:
        if isinstance(text, str | bytes) and WIDTH.search(as_text(text)):
            raise OverBudget(f"it formats to a width above {LARGEST_COUNT}")


def raise_exception(message: str) -> None:
    """Refuse the messages."""
    raise TemplateError(message)


def strftime_now(form: str) -> str:
    """The time of day in a format."""
    check_formats([form])
    return datetime.now().strftime(form)


def dict_of(*args: Any, **values: Any) -> dict[Any, Any]:
    """A new mapping."""
    return dict(*args, **values)


def tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """A value as JSON, with its characters as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=8)
def compiled(template: str) -> tuple[BoundedEnvironment, Template]:
    """A template ready to be rendered, and what bounds it."""
    environment = BoundedEnvironment()
    return environment, environment.from_string(template)


def plain(value: Any) -> Any:
    """A value made of what JSON knows; of anything else only the name of its class."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return f"<{type(value).__name__}>"


def as_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: without keys that say nothing, and its reasoning under every usual name."""
    said = {key: plain(value) for key, value in message.items() if value is not None}
    reasoning = next((said[name] for name in REASONING if name in said), None)
    return said if reasoning is None else {"thinking": reasoning, **said, "reasoning_content": reasoning}


def render(
    template: str, messages: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, str], *, continues: bool = False
) -> str:
    """Return the text that a chat template makes of messages, up to the beginning of the assistant's answer.

    With `continues`, the text ends with the content of the last message, which the answer continues: what the template writes
    after it is cut off, as `continue_final_message` of transformers does. Raises ValueError if the template is invalid, refuses
    the messages, takes too long, makes too much text, or does not write the last message.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise ValueError(f"the chat template has {len(template)} characters, and at most {LONGEST_TEMPLATE} are read")
    try:
        environment, ready = compiled(template)
        environment.budget.start()
        given = [as_message(message) for message in messages]
        if continues:
            given[-1]["content"] += END_OF_LAST
        facts: dict[str, Any] = {"tools": None, "documents": None, "add_generation_prompt": not continues, **special_tokens}
        text = ready.render(messages=given, **facts)
        return text_before_end(text, str(messages[-1]["content"])) if continues else text
    except KNOWN as error:
        kind = "" if isinstance(error, TemplateError | ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"the chat template cannot render these messages: {kind}{error}") from error


def text_before_end(text: str, last: str) -> str:
    """Return a rendered text up to the end of its last message, `last`. Raises ValueError if the message is missing."""
    end = text.rfind(END_OF_LAST.strip())
    if end < 0 or last.strip() not in text:
        raise ValueError("the last message, which the answer continues, is not in the text")
    # A template that trims messages has removed the blank after the mark, so blanks before the mark are removed, too.
    return text[:end] if text.startswith(END_OF_LAST, end) else text[:end].rstrip()
