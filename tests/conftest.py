"""For all tests: none uses the files of the user who runs it, none fails for being slow."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.real_models import note_place
from tests.waiting import pytest_pyfunc_call as pytest_pyfunc_call

# The same examples on every run. The slow set looks for others, and prints how to repeat a failure.
settings.register_profile("gate", deadline=None, derandomize=True, database=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if "LOCALSPEC_SHARE" in os.environ else "gate")

# The hundreds of processes that are started here would each compile all of localspec.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# People's shells do not set this, and what cannot be written is found out later without it.
os.environ.pop("PYTHONUNBUFFERED", None)
sys.dont_write_bytecode = False

# Daemons of tests measure no model while it is idle: that takes both cores for seconds after each start.
os.environ.setdefault("LOCALSPEC_IDLE", "off")
# No test downloads the default model, or is asked whether to: the bundled pair answers.
os.environ.setdefault("LOCALSPEC_AUTO_PULL", "off")

# What a shell starts in the background ignores SIGINT, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Real models for tests are the user's, and the next lines replace the home.
note_place()

# No test sees the models that the person who runs it has. At once: some modules ask for the home when
# they are imported. Where Ollama runs as a service its models lie in a place that no home changes.
USER = tempfile.mkdtemp(prefix="user")
atexit.register(shutil.rmtree, USER, ignore_errors=True)
for variable in (
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
):
    os.environ.pop(variable, None)
os.environ["HOME"] = USER
os.environ["OLLAMA_MODELS"] = os.path.join(USER, ".ollama", "models")


@pytest.fixture(autouse=True)
def seeds_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without a seed take the same ones in every run of a test, in its own process."""
    monkeypatch.setattr("secrets.randbits", random.Random(1).getrandbits)


@pytest.fixture(scope="session", autouse=True)
def home_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of their own, unless a test makes one for itself."""
    path = tmp_path_factory.mktemp("home")
    before = os.environ.get("LOCALSPEC_HOME")
    os.environ["LOCALSPEC_HOME"] = str(path)
    yield path
    if before is None:
        del os.environ["LOCALSPEC_HOME"]
    else:
        os.environ["LOCALSPEC_HOME"] = before
