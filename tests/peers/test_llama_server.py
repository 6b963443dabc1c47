"""llama.cpp's own server tests, on our daemon: only the start of the server is adapted.

They need llama.cpp's source and some packages. Tests of features that are not offered (tools, schemas,
embeddings, slots on disk) and of their model's words fail; those that must pass are named.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.real_vocabularies import SOURCE

PACKAGES = ("filelock", "openai", "requests", "wget")
START = f'#!/bin/sh\nexec {sys.executable} -P {Path(__file__).with_name("llama_server.py")} "$@"\n'
MUST_PASS = [
    "test_basic.py::test_server_start_simple",
    "test_chat_completion.py::test_context_size_exceeded",
    "test_chat_completion.py::test_context_size_exceeded_stream",
    "test_chat_completion.py::test_chat_completions_multiple_choices",
    "test_chat_completion.py::test_chat_completion_with_timings_per_token",
    "test_chat_completion.py::test_invalid_chat_completion_req",
    "test_chat_completion.py::test_logit_bias",
    "test_chat_completion.py::test_logprobs",
    "test_chat_completion.py::test_logprobs_stream",
    "test_completion.py::test_completion_parallel_slots",
    "test_completion.py::test_completion_stream_vs_non_stream",
    "test_completion.py::test_completion_with_tokens_input",
    "test_completion.py::test_consistent_result_same_seed",
    "test_completion.py::test_different_result_different_seed",
    "test_completion.py::test_json_prompt_no_mtmd",
    "test_completion.py::test_logit_bias",
    "test_completion.py::test_n_probs",
    "test_completion.py::test_nocache_long_input_prompt",
    "test_infill.py::test_invalid_input_extra_req",
    "test_metrics.py::test_metrics_generation_rate_excludes_first_token",
    "test_metrics.py::test_metrics_slots_idle_after_completion",
    "test_metrics.py::test_metrics_timings_are_finite",
]


def source() -> Path:
    """Return the directory of llama.cpp's server tests; skip if they or their packages are missing."""
    root = os.environ.get(SOURCE)
    if root is None or not (Path(root) / "tools/server/tests/utils.py").exists():
        pytest.skip(f"llama.cpp's own server tests: {SOURCE} names no source with tools/server/tests")
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        pytest.skip(f"llama.cpp's own server tests: they want the packages {', '.join(missing)}")
    return Path(root) / "tools/server/tests"


@pytest.mark.slow
def test_llama_cpps_own_tests_of_what_is_offered(tmp_path: Path) -> None:
    tests = source()
    start = tmp_path / "llama-server"
    start.write_text(START)
    start.chmod(0o700)
    (tmp_path / "homes").mkdir()
    # Their session begins with a server for each of seven models, which are all the bundled pair here.
    preset = tmp_path / "once.py"
    preset.write_text("import utils\nutils.ServerPreset.load_all = staticmethod(lambda: None)\n")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "once", "--tb=line", "-rA")
        + tuple(f"unit/{name}" for name in MUST_PASS),
        cwd=tests,
        env={
            **os.environ,
            "LLAMA_SERVER_BIN_PATH": str(start),
            "LOCALSPEC_PEERS_HOME": str(tmp_path / "homes"),
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(tests), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=1200,
    )
    counts = re.findall(r"(\d+) (passed|failed|errors?)", done.stdout.splitlines()[-1])
    print(", ".join(f"{count} {ending}" for count, ending in counts))
    assert done.returncode == 0, done.stdout[-4000:]
