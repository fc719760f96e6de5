"""Inner rules: those that may remask are refused at any depth, and a user-written one is blamed for what it returns."""

from dataclasses import dataclass, replace
from functools import partial
from typing import final

import pytest

from dlstep import rules
from dlstep.core import Choice, Config, Refused, Request, Rule, SamplingParams, Spec, options_of, with_options
from dlstep.core.errors import RequestFault
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.dilated import Dilated
from dlstep.rules.hierarchy import Hierarchy
from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.spaced import Spaced
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing import ShadowDriver

from ...helpers.decoding import passes
from ...helpers.refusals import refused

CONFIG = Config(Spec(49, (48,), 50))
DEVICE = partial(ShadowDriver, CONFIG.page_size, CONFIG.num_pages, CONFIG.spec)
OWNERS = [AdaBlock, Sliding, Spaced]
REMASKING = Hierarchy(remask_threshold=0.95)


@final
@dataclass(frozen=True, slots=True)
class Wrapper(Choice):
    """A rule of a user that hands everything to the rule inside, and may say itself that this one remasks."""

    inner: Rule = Threshold()
    says: bool = False
    kind: str = ""

    @property
    def remasks(self):
        return self.says and self.inner.remasks

    def chosen(self, block_pass):
        raise NotImplementedError

    def sampled(self, planned):
        return list(planned.block.masked) if self.kind == "list" else self.inner.sampled(planned)

    def commit(self, block_pass):
        after = self.inner.commit(block_pass)
        return {"nothing": None, "junk": replace(after, tokens=(10**6,) * len(after.tokens), masked=())}.get(self.kind, after)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
@pytest.mark.parametrize("says", [False, True])
def test_inner_rules_that_may_remask_are_refused_at_any_depth(owner, says):
    """Also by an option that is set later, and where only the innermost rule remasks."""
    deep = [REMASKING, Wrapper(REMASKING, says), Wrapper(Wrapper(REMASKING, says), says)]
    for inner in deep:
        with refused("inner", "unsupported"):
            owner(inner=inner)
    with refused("inner", "unsupported"):
        with_options(owner(inner=Hierarchy()), {"remask_threshold": 0.95})
    assert owner(inner=Wrapper(Wrapper(Hierarchy()))).inner.inner.inner == Hierarchy()


def test_every_rule_that_holds_another_refuses_one_that_remasks():
    """Whatever rule is added: none takes one that remasks, unless it says that it remasks itself."""
    holding = [rules.load(name)() for name in rules.available() if "inner" in options_of(rules.load(name)())]
    assert len(holding) > len(OWNERS)
    for rule in holding:
        with pytest.raises(Refused, match=r"^inner: "):
            with_options(rule, {"inner": REMASKING})
    assert Spaced(Quota(schedule="dream")).whole


@pytest.mark.parametrize("owner", [AdaBlock, Sliding], ids=lambda owner: owner.__name__)
@pytest.mark.parametrize(
    "kind, blame",
    [
        ("list", r"Wrapper\.sampled .* must be a tuple of ascending positions"),
        ("nothing", r"Wrapper\.commit .* returned None: it must be a Block"),
        ("junk", r"Wrapper\.commit .* token 1000000 at position \d+: a given position .* holds a sampled token"),
    ],
)
def test_a_rule_of_a_user_is_checked_inside_another(owner, kind, blame):
    strategy, request = DualCache(rule=owner(inner=Wrapper(kind=kind))), Request(0, (1, 2), SamplingParams(seed=0))
    with pytest.raises(RequestFault, match=blame):
        list(passes(CONFIG, strategy, request, DEVICE()))


@pytest.mark.parametrize("owner", [AdaBlock, Sliding, Spaced], ids=lambda owner: owner.__name__)
def test_a_rule_advances_in_every_pass_although_its_inner_rule_keeps_all_positions(owner):
    """The measure of the outer rule counts masks; `Dilated` keeps improbable positions until its last level."""
    strategy = DualCache(8, "none", owner(inner=Dilated(keep=1.0)))
    request, left = Request(0, (1, 2), SamplingParams(max_tokens=8, seed=0, ignore_eos=True)), 8
    for _, _, after in passes(CONFIG, strategy, request, DEVICE()):
        now = sum(len(block.masked) for block in after.progress.window)
        assert now < left
        left = now
