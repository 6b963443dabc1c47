# make run PROMPT="…"   install if needed, start what is needed, stream an answer
# make install          the virtual environment alone (.venv)
# make dev            the packages of tests and documentation into it, too
# make mlx              the MLX backend into it, on Linux; on Apple silicon it is there already
# make http             what the HTTP server needs, into it
# make test             lint, types, all tests
# make test-slow        what takes minutes: more prompts, random cancels and kills, random input, editors that
#                       `make editors` installed; SHARE=1: all of the many cases, not a quarter
# make docs             the documentation as a site, build/docs; its generated parts are written anew
# make locks           locks/*.txt anew after a change of pyproject.toml; wants uv. UPGRADE=--upgrade: newest versions
# make vsix            the VS Code extension, as plugins/vscode/localspec-….vsix; wants Node ≥ 20
# make editors         VS Code and two Neovims into .editors, for tests; as root also what Debian has of editors
# make soak             REQUESTS=20000 SEED=1: mixed requests to a real daemon, and what it took
PROMPT ?= What does `textwrap.dedent` do?
export PROMPT
PYTHON ?= python3
REQUESTS ?= 20000
SEED ?= 1
SHARE ?= 0.25
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Every package is one whose hash is in locks/: what pip would download to build with, too.
LOCKED := $(PIP) install --progress-bar on --require-hashes --no-build-isolation
OURS := $(PIP) install --quiet --no-build-isolation --no-deps -e .
LOCK := uv pip compile --no-strip-extras --quiet --no-emit-package pip --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
UPGRADE ?=

.PHONY: run install dev mlx http test lint types test-slow docs locks vsix editors soak clean

run: $(VENV)/.installed
	@$(BIN)/localspec run --stats --max-tokens 256 "$$PROMPT"

install: $(VENV)/.installed

dev: $(VENV)/.installed-dev

mlx: $(VENV)/.installed
	$(LOCKED) -r locks/mlx.txt

http: $(VENV)/.installed
	$(LOCKED) -r locks/http.txt

$(VENV)/.installed: pyproject.toml $(wildcard locks/*.txt)
	@echo "Installing into $(VENV). The first time, llama.cpp is compiled: about 5 minutes on 2 cores."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(LOCKED) --quiet --only-binary :all: -r locks/build.txt
	$(LOCKED) -r locks/install.txt
	$(OURS)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(LOCKED) --quiet -r locks/dev.txt
	@touch $@

# Every other test waits for something that is not the processor.
WORKERS := $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

test: lint types
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

test-slow: $(VENV)/.installed-dev
	LOCALSPEC_SHARE=$(SHARE) $(BIN)/python -m pytest -q -m slow -n auto --dist worksteal -rs
	$(BIN)/python -m pytest -q -n auto --dist loadfile tests/engine tests/speculation tests/parity tests/backends \
	  --cov=localspec.engine --cov=localspec.speculation --cov-report=term --cov-fail-under=90

docs: $(VENV)/.installed-dev
	$(BIN)/python -m assets.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The others take their versions from dev.txt, which has all.
locks:
	$(LOCK) $(UPGRADE) locks/build.in -o locks/build.txt
	$(LOCK) $(UPGRADE) pyproject.toml --extra dev --extra bench --extra mlx --extra editors --extra docs -o locks/dev.txt
	$(LOCK) -c locks/dev.txt pyproject.toml --extra bench -o locks/install.txt
	$(LOCK) -c locks/dev.txt pyproject.toml --extra bench --extra http -o locks/http.txt
	$(LOCK) -c locks/dev.txt pyproject.toml --extra bench --extra mlx -o locks/mlx.txt

vsix:
	npm --prefix plugins/vscode ci --no-audit --no-fund --ignore-scripts
	npm --prefix plugins/vscode run package

editors: $(VENV)/.installed-dev
	$(BIN)/python -m tests.editors.install

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.slow.soak --requests $(REQUESTS) --seed $(SEED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
