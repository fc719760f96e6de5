# Everything on a fresh machine: `make demo`, `make test`, `make full`. Needs Python 3.11 or newer; another one: make PYTHON=python3.12 demo
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := install --quiet --disable-pip-version-check -c constraints.txt

# Two workers, each with one thread of torch; the one that is done first takes over tests of the other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# How often `make full` tries the laws on new examples.
RUNS := 1

# Lets an environment use the packages of this one, behind its own.
beside = $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"

define WHEEL_RUNS
.venv-wheel/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
cd .venv-wheel && env -u PYTHONPATH bin/python -c 'import dlstep; assert "wheel" in dlstep.__file__, dlstep.__file__'
cd .venv-wheel && env -u PYTHONPATH bin/dlstep generate 'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?' --progress false
cd .venv-wheel && env -u PYTHONPATH bin/python -c 'from dlstep.views.page import page_of; page_of({})'
endef

.PHONY: demo test full lint pytest stress clients wheel wheel-alone oldest newest release-check mutants mutate table pictures moving-picture comparisons page-pictures docs docs-serve site-pictures notebooks kernels-aot terminal-pictures clean
.DELETE_ON_ERROR:

# Stamp files: a target runs again only when what it depends on has changed.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dlstep needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(PIP_INSTALL) torch==2.13.0
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip $(PIP_INSTALL) -e .
	touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	$(BIN)/pip $(PIP_INSTALL) -e '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	$(BIN)/pip $(PIP_INSTALL) -e '.[docs]'
	touch $@ $(VENV)/.demo

# What `make full` needs: more packages and, where Debian packages may be installed, a browser for the tests of the page and
# bubblewrap for those of the sandbox. Tests that lack theirs are skipped and say so.
$(VENV)/.full: $(VENV)/.torch pyproject.toml
	$(BIN)/pip $(PIP_INSTALL) -e '.[full]'
	@if { command -v chromium || command -v chromium-browser; } && command -v bwrap; then true; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
	    export DEBIAN_FRONTEND=noninteractive; timeout 300 apt-get update -qq; \
	    timeout 900 apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core bubblewrap; \
	fi >/dev/null 2>&1 || true
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	    echo "no chromium could be installed: the tests of the page will be skipped"
	@command -v bwrap >/dev/null || echo "no bubblewrap could be installed: its tests will be skipped"
	touch $@ $(VENV)/.test $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/dlstep demo

# The order: what fails fastest first; pyright uses one core, so that the wheel is built meanwhile. pytest's summary ends the output.
test: $(VENV)/.test
	$(MAKE) --jobs 2 --output-sync lint wheel
	$(MAKE) pytest

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell

# The tests of `make test`: quick tests of nearly all packages, one test of two ranks, checks of the repository.
DOCS_OF_FULL := $(addprefix tests/docs/test_,$(addsuffix .py,blocks first_hour pictures readme release_check \
    site terminal_pictures))
CHOSEN := tests/property tests/reference $(filter-out $(DOCS_OF_FULL),$(wildcard tests/docs/test_*.py)) \
    $(addprefix tests/unit/,batch cli core dlstep_kernels driver engine evaluate models processes processors rules serve \
    strategies testing text tiny views) $(wildcard tests/unit/test_*.py) tests/end_to_end/test_answers.py \
    tests/unit/distributed/test_rank_zero.py::test_a_call_equals_one_process_and_a_rank_that_is_killed_ends_it

pytest: $(VENV)/.test
	@echo 'Slow tests, and most tests of the page, the notebooks and the docs, run only in `make full`.'
	$(PYTEST) -m 'not full and not stress and not clients' $(CHOSEN)

# Tests of properties of the core, of rules, strategies and kernels.
LAWS := tests/property tests/unit/rules tests/unit/strategies tests/unit/dlstep_kernels tests/unit/views/test_frames.py \
    $(filter-out %/test_checks.py %/test_draws.py %/test_options_plugins.py,$(wildcard tests/unit/core/test_*.py)) \
    tests/end_to_end/test_structured.py

# All tests but the long forms, the wheel with only what it asks for, and the laws RUNS times, each time on new examples.
full: lint wheel-alone $(VENV)/.full
	$(PYTEST)
	for run in $$(seq $(RUNS)); do \
	    seed=$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(2**32))'); \
	    echo "run $$run of $(RUNS), seed $$seed"; \
	    HYPOTHESIS_PROFILE=seeds $(PYTEST) -q --timeout=0 $(LAWS) --hypothesis-seed=$$seed || exit 1; \
	done

# Long forms of tests, which take minutes each.
stress: $(VENV)/.full oldest
	$(PYTEST) --timeout=0 -m stress

# Third-party clients of `dlstep serve`, unchanged, each in an environment of its own under .venv-clients.
clients: $(VENV)/.full
	$(BIN)/python -m pytest -m clients tests/clients

# The wheel generates without the source tree in reach, on the packages that are there; `wheel-alone`: on what it asks for.
wheel: $(VENV)/.test
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir dist
	$(PYTHON) -m venv .venv-wheel
	$(call beside,.venv-wheel)
	$(WHEEL_RUNS)

wheel-alone: $(VENV)/.test
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --wheel --outdir dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip $(PIP_INSTALL) torch==2.13.0
	.venv-wheel/bin/pip $(PIP_INSTALL) dist/*.whl
	$(WHEEL_RUNS)

# Models and ranks with the oldest transformers that pyproject.toml allows, beside the packages that are there.
oldest: $(VENV)/.test
	rm -rf .venv-oldest
	$(PYTHON) -m venv .venv-oldest
	$(call beside,.venv-oldest)
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check "$$(sed -n 's/.*"transformers>=\(.*\),<.*",/transformers==\1.0/p' pyproject.toml)"
	PYTHONPATH=src .venv-oldest/bin/python -m pytest -n 2 tests/unit/models tests/unit/driver tests/unit/distributed tests/reference

# Tests with the newest dependencies that pyproject.toml allows, as `pip install .` resolves them, in a separate environment.
NEWEST_TESTS := tests/unit/models tests/unit/driver tests/reference tests/end_to_end/test_answers.py tests/unit/serve

newest:
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-newest/bin/pip install --quiet --disable-pip-version-check '.[test]'
	.venv-newest/bin/pip list --disable-pip-version-check
	.venv-newest/bin/dlstep demo
	.venv-newest/bin/python -m pytest -n 2 --dist worksteal $(NEWEST_TESTS)

# The wheel and the source archive in dist, as they would be released; TAG=v1.2.3 checks the tag and the changelog's date too.
release-check: $(VENV)/.test
	$(BIN)/pip $(PIP_INSTALL) -e '.[release]'
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m tests.release_check dist '$(TAG)'

# Faults of the catalogue, each of which a test must notice; ONLY=TEXT selects some by file, function or fault.
# With N=60, instead 60 random faults outside the core, rules and strategies, drawn with SEED (default: the date); prints those
# that no test notices, and how many the tests of `make test` notice.
mutants: $(VENV)/.full
ifdef N
	$(BIN)/pip $(PIP_INSTALL) -e '.[mutate]'
	$(BIN)/python -m tests.mutants.drawn --count $(N) $(if $(SEED),--seed $(SEED)) --tests $(CHOSEN)
else
	$(BIN)/python -m tests.mutants $(if $(ONLY),--only '$(ONLY)')
endif

# Faults that mutmut makes in FILES, such as src/dlstep/core/state.py; prints those that no test notices.
mutate: $(VENV)/.full
	$(BIN)/pip $(PIP_INSTALL) -e '.[mutate]'
	$(BIN)/python -m tests.mutants.mutate $(FILES)

# Every kernel, compiled for three architectures: tests/unit/dlstep_kernels/gpu/aot.json. What has not changed is not
# compiled again.
kernels-aot: $(VENV)/.test
	$(BIN)/python -m tests.unit.dlstep_kernels.gpu.kernel_aot

# The table and the picture of docs/results.md: every strategy, and the README's rule, on 500 held-out problems.
table: $(VENV)/.test
	PYTHONPATH=. $(BIN)/python docs/make_table.py

# How each decoding rule fills in one story, for its page; and the table of rules in docs/strategies/index.md.
pictures: $(VENV)/.test
	$(BIN)/python docs/make_pictures.py

# The README's moving picture: one story decoded by three rules.
moving-picture: $(VENV)/.test
	$(BIN)/python docs/make_moving_picture.py

# Strategies compared on stories, as docs/results.md shows them.
comparisons: $(VENV)/.test
	$(BIN)/dlstep compare --strategies all --rules threshold --problems 200 --plot docs/strategies.png
	$(BIN)/dlstep compare --model tiny-joint --strategies [autoregressive,causal_blocks,self_speculation] --rules threshold \
	    --problems 200 --plot docs/strategies/self_speculation.png

# The live page, and the slider of the first notebook, as the docs show them.
page-pictures: $(VENV)/.full
	PYTHONPATH=. $(BIN)/python docs/make_page_pictures.py
	$(BIN)/python docs/make_notebook_picture.py

# The documentation site, in build/site. A warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -n -W --keep-going -d build/doctrees docs build/site
	@echo "build/site/index.html"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8080

# The site, as CONTRIBUTING.md shows it.
site-pictures: $(VENV)/.full docs
	PYTHONPATH=. $(BIN)/python docs/make_site_pictures.py

# `dlstep demo` in terminals of two widths, on a dark and on a light background: docs/terminal.
terminal-pictures: $(VENV)/.test
	$(BIN)/python docs/make_terminal_pictures.py

# Every notebook run from its first cell to its last, and stored with what it shows.
notebooks: $(VENV)/.full
	$(BIN)/python docs/make_notebooks.py

clean:
	rm -rf $(VENV) .venv-wheel .venv-oldest .venv-newest .venv-clients dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
