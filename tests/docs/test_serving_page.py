"""The lists of docs/serving.md are those of the server."""

import re
from dataclasses import fields

from dlstep.serve.router.metrics import Metrics
from dlstep.serve.settings import ServeOptions

from .blocks import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text()


def test_the_page_names_every_option_that_limits_something_and_no_other():
    named = set(re.findall(r"--(\w+)", PAGE))
    own = {field.name for field in fields(ServeOptions)}
    assert own - {"port", "log_requests"} <= named | {"log_prompts"}
    assert {name for name in named if name.startswith(("max_queue", "queue_", "request_", "body_", "drain_"))} <= own


def metric_names():
    """The names that `/metrics` has."""
    return set(re.findall(r"^# TYPE (\S+)", Metrics((), ()).text().decode(), re.MULTILINE))


def test_the_page_names_metrics_that_there_are():
    named = set(re.findall(r"`((?:vllm:|dlstep_|process_)\w+)", PAGE)) - {"process_"}
    assert named and named <= metric_names(), named - metric_names()
    assert {name for name in metric_names() if name.startswith("dlstep_") and not name.endswith("_created")} <= named


def test_examples_of_events_have_the_fields_that_are_sent():
    shown = set(re.findall(r'"(\w+)":', PAGE[PAGE.index("data: {") : PAGE.index("Each cell is")]))
    assert {"seq", "step", "nfe", "settled", "cells", "finish_reason", "tokens_per_forward"} <= shown
