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

from tests.real_models import SOURCE

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
FILES = ["basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ctx_shift"]
FILES += ["ignore_eos", "infill", "metrics", "security", "template", "tokenize", "tool_call"]
EXCEPTIONS = {
    "the words, the tokens or the images of the models that they download": """
        basic::load_split_model chat_completion::chat_completion[ chat_completion::chat_completion_stream[
        chat_completion::chat_completion_with_openai_library
        chat_completion::completion_with_response_format[response_format1
        compat_anthropic::anthropic_vision_base64_with_multimodal_model
        compat_oai_responses::responses_with_openai_library completion::completion[
        completion::completion_prompt_cache completion::completion_response_fields
        completion::completion_stream[ completion::completion_stream_with_openai_library
        completion::completion_with_openai_library ctx_shift:: infill::infill_with
        metrics::metrics_embedding_prompt_is_counted security::local_media_file tokenize::tokenize_with_bos
    """,
    "a field that is refused by name, or with another status": """
        compat_anthropic::anthropic_empty_messages compat_anthropic::anthropic_tool_result_with_image
        compat_anthropic::anthropic_vision_format_accepted completion::n_probs_post
        ignore_eos::ignore_eos_populates_logit_bias template::add_generation_prompt[
    """,
    "prompts that are reused by whole pieces, so that no text depends on it": """
        chat_completion::chat_completion_cached_tokens chat_completion::return_progress
        metrics::metrics_prompt_processed_and_cached
    """,
    "names of headers in capitals, which are all in lower case here": """
        metrics::metrics_predicted_total_matches_requests metrics::metrics_prometheus_format
    """,
    "a cut response that ends as OpenAI's do, incomplete": """
        compat_oai_responses::responses_stream_with_llama_telemetry
    """,
    "a flag, a template or a page of llama-server's own": """
        basic::no_ui basic::server_model basic::server_multiple_addresses basic::server_slots
        chat_completion::apply_chat_template chat_completion::chat_template chat_completion::verbose_debug
        metrics::metrics_disabled security::access_static_assets
        security::cors_ template::date_inside_prompt[fireworks template::reasoning[
    """,
}
"""tests that fail, as FILE::BEGINNING, by what they need; all others of the files must pass"""


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
    exceptions = (name.split("::") for names in EXCEPTIONS.values() for name in names.split())
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "once", "--tb=line", "-rA")
        + ("-m", "not slow", *(f"unit/test_{name}.py" for name in FILES))
        + tuple(f"--deselect=unit/test_{file}.py::test_{test}" for file, test in exceptions),
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
