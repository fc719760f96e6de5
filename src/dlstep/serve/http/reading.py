"""Translation of the bodies of `/v1/reads` to submissions. It finds every error before the response begins."""

from ...core import refusal
from ...engine.reads import Reading, read_request
from ...text.read_templates import ReadTemplate, encode_template
from ..facts import Facts
from ..messages import Submit
from .errors import ApiError
from .schema import ReadRequest
from .translate import TranslatedBody, check_count, check_length, encoded_prompt, prompts_of


def read(facts: Facts, body: ReadRequest) -> TranslatedBody:
    """Translate a body. Raises ApiError that names the invalid field."""
    prompts, config = prompts_of(body), facts.info.config
    check_count(facts, len(prompts), 1)
    encoded = [encoded_prompt(facts.texts, prompt, config.max_model_len, "prompt") for prompt in prompts]
    characters = sum(len(part) if isinstance(part, str) else max(map(len, part)) for part in body.template)
    check_length(characters, config.max_model_len, "template")
    reading = Reading(facts.info.strategy)
    if reason := reading.incompatibility(config.spec):
        raise ApiError(400, f"the model {facts.model!r} cannot be read: {reason}", param="model")
    try:
        template = encode_template(facts.texts.tokenizer, body.template)
    except ValueError as error:
        raise ApiError(400, str(error), param="template") from error
    return TranslatedBody(tuple([_submit(facts, reading, prompt, template) for prompt in encoded]), (), ())


def _submit(facts: Facts, reading: Reading, prompt: tuple[int, ...], template: ReadTemplate) -> Submit:
    """Return the submission of a read. Raises ApiError if the engine would reject it."""
    config = facts.info.config
    try:
        request = read_request(0, prompt, template, config.max_model_len)
    except ValueError as error:
        code = "context_length_exceeded" if "max_model_len" in str(error) else None
        raise ApiError(400, str(error).removeprefix("request 0: "), param="prompt", code=code) from error
    if reason := refusal(config, reading, request):
        raise ApiError(400, reason, param="prompt")
    return Submit(0, prompt, request.params, template=template, probabilities=True)
