# make run PROMPT="…"   install if needed, start what is needed, stream an answer
# make install          the virtual environment alone (.venv)
# make mlx              the MLX backend into it, on Linux; on Apple silicon it is there already
# make http             what the HTTP door needs, into it
# make test             lint, types, all tests
# make test-slow        what takes minutes: more prompts, random cancels and kills, random input, editors that
#                       `make editors` installed; SHARE=1: all of the many cases, not a quarter
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

.PHONY: run install mlx http test lint types test-slow vsix editors soak clean

run: $(VENV)/.installed
	@$(BIN)/localspec run --stats --max-tokens 256 "$$PROMPT"

install: $(VENV)/.installed

mlx: $(VENV)/.installed
	$(PIP) install --progress-bar on -c constraints.txt -e '.[mlx]'

http: $(VENV)/.installed
	$(PIP) install --progress-bar on -c constraints.txt -e '.[http]'

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV). The first time, llama.cpp is compiled: about 5 minutes on 2 cores."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on -c constraints.txt -e '.[bench]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet --progress-bar on -c constraints.txt -e '.[dev,mlx]'
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

vsix:
	npm --prefix plugins/vscode ci --no-audit --no-fund --ignore-scripts
	npm --prefix plugins/vscode run package

editors: $(VENV)/.installed-dev
	$(BIN)/python -m tests.editors.install

soak: $(VENV)/.installed-dev
	$(BIN)/python -m tests.slow.soak --requests $(REQUESTS) --seed $(SEED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
