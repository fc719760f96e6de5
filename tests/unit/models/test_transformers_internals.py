"""What dlstep uses of transformers beyond its public interface, and the versions that it allows."""

import re
import tomllib
from pathlib import Path

import pytest
import transformers
from packaging.requirements import Requirement
from packaging.version import Version

import dlstep
from dlstep.models.families import FAMILIES
from dlstep.models.transformers_internals import NEWEST, OLDEST, cache_argument

ROOT = Path(__file__).parents[3]
PRIVATE = re.compile(
    r"(from|import) transformers\.|\b(_from_config|_tp_plan|base_model_tp_plan|_apply_gate|_is_hf_initialized"
    r"|past_key_values|is_compileable)\b"
)


def test_the_bounds_of_transformers_are_the_versions_that_were_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = [asked for asked in map(Requirement, project["dependencies"]) if asked.name == "transformers"]
    major, minor = map(int, NEWEST.split("."))
    assert {str(each) for each in bound.specifier} == {f">={OLDEST}", f"<{major}.{minor + 1}"}
    assert bound.specifier.contains(transformers.__version__)
    pinned = re.search(r"^transformers==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert bound.specifier.contains(Version(pinned[1]))


def test_one_module_names_what_is_used_beyond_the_public_interface():
    source = Path(dlstep.__file__).parent
    naming = {str(path.relative_to(source)) for path in source.rglob("*.py") if PRIVATE.search(path.read_text())}
    assert naming == {"models/transformers_internals.py"}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_s_class_takes_its_cache_by_the_found_name(name):
    renamed = Version(transformers.__version__) >= Version("5.24")
    assert cache_argument(FAMILIES[name].network) == ("cache" if renamed else "past_key_values")
