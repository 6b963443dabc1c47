"""llama.cpp's own server tests, on our daemon: only the start of the server is adapted.

They need llama.cpp's source and some packages. Those that fail here are named with the reason.
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
ONCE = """
import utils

utils.ServerPreset.load_all = staticmethod(lambda: None)

def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item.module, "TEST_API_KEY"):
            item.module.TEST_API_KEY = "a" * 64
"""
"""a plugin: no models are loaded beforehand, and keys have the form of our tokens"""
FILES = ("basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ctx_shift")
FILES += ("ignore_eos", "infill", "metrics", "security", "template", "tokenize", "tool_call")
EXCEPTIONS = {
    "the words, the tokens or the images of the models that they download": """
        basic::test_load_split_model
        chat_completion::test_chat_completion[
        chat_completion::test_chat_completion_cached_tokens
        chat_completion::test_chat_completion_stream[
        chat_completion::test_chat_completion_with_openai_library
        chat_completion::test_completion_with_response_format[response_format1
        chat_completion::test_return_progress
        compat_anthropic::test_anthropic_vision_base64_with_multimodal_model
        compat_oai_responses::test_responses_with_openai_library
        completion::test_completion[
        completion::test_completion_prompt_cache
        completion::test_completion_response_fields[I believe the meaning of life is-32
        completion::test_completion_stream[
        completion::test_completion_stream_with_openai_library
        completion::test_completion_with_openai_library
        ctx_shift::
        infill::test_infill_with
        metrics::test_metrics_embedding_prompt_is_counted
        security::test_local_media_file
        tokenize::test_tokenize_with_bos
    """,
    "a field that is refused by name, or with another status": """
        compat_anthropic::test_anthropic_empty_messages
        compat_anthropic::test_anthropic_tool_result_with_image
        compat_anthropic::test_anthropic_vision_format_accepted
        completion::test_n_probs_post
        ignore_eos::test_ignore_eos_populates_logit_bias
        template::test_add_generation_prompt[
    """,
    "a cut response that ends as OpenAI's do, incomplete": """
        compat_oai_responses::test_responses_stream_with_llama_telemetry
    """,
    "a flag, a template or a page of llama-server's own": """
        basic::test_no_ui
        basic::test_server_model
        basic::test_server_multiple_addresses
        basic::test_server_slots
        chat_completion::test_apply_chat_template
        chat_completion::test_chat_template
        chat_completion::test_verbose_debug
        metrics::test_metrics_disabled
        metrics::test_metrics_prometheus_format
        security::test_access_static_assets
        security::test_cors_options
        security::test_cors_origins_defaults
        security::test_cors_origins_localhost_rejects
        security::test_cors_proxy
    """,
}
"""tests that fail, by what they need; all others of the files must pass"""


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
    preset.write_text(ONCE)
    lines = "".join(EXCEPTIONS.values()).splitlines()
    exceptions = [name for line in lines if (name := line.strip())]
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "once", "--tb=line", "-rA")
        + ("-m", "not slow", *(f"unit/test_{name}.py" for name in FILES))
        + tuple(f"--deselect=unit/test_{name.replace('::', '.py::', 1)}" for name in exceptions),
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
