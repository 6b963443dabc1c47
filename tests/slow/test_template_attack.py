"""Attack: chat templates with every method, filter, test, operator and global, to make much of little.

The names are those of Python's types and of Jinja's environment, so that none is forgotten. This process may
grow by no more than a text's limit, the template's process by no more than its own.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import psutil
import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import ModelInvalid
from localspec.models import template
from localspec.models.template import MAX_CHARS, MAX_MEMORY, ChatTemplate
from localspec.protocol.requests import Message

pytestmark = pytest.mark.slow

ENVIRONMENT = ImmutableSandboxedEnvironment(extensions=[loopcontrols])
HUGE = 1_500_000_000
SECONDS = 0.3
LONGEST_S = 10.0
TOGETHER = 50
"""expressions in one template, which must be compiled within its limit"""
CONVERSATION = [Message("user", "Hi")]

VARIABLES = {
    "a": "a",
    "tabs": "\t" * 1000,
    "long": "a" * 1_000_000,
    "percent": "%1500000000d",
    "braces": "{:1500000000}",
    "nested": "{0:>{1}}",
    "one": 1,
    "huge": HUGE,
    "items": ["a" * 1000] * 100,
    "map": {"a": 1},
}
"""not constants, which Jinja would compute when it compiles"""
VALUES = {
    str: ("a", "tabs", "long", "percent", "braces", "nested"),
    bytes: ("a.encode()", "tabs.encode()", "long.encode()"),
    list: ("[one]", "(items * 10000)"),
    tuple: ("(one,)",),
    dict: ("map", "dict.fromkeys(range(99999), long)"),
    int: ("one", "(7 ** (one * 99999))"),
    float: ("(one / 2)",),
}
FILTERED = ("a", "tabs", "percent", "items * 10000", "map", "huge")
ARGUMENTS = (
    "",
    "huge",
    "huge, a",
    "one, huge",
    "a, long",
    "'', long",
    "items * 100000",
    "long",
    "'utf-32'",
    "huge, 'big'",
    "width=huge",
    "indent=huge",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "in", "==", "<")


def names(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


METHODS = [(kind.__name__, name) for kind in VALUES for name in names(kind)]
FILTERS = sorted(ENVIRONMENT.filters)
TESTS = sorted(name for name in ENVIRONMENT.tests if name.isidentifier())
GLOBALS = sorted({*ENVIRONMENT.globals, "raise_exception", "strftime_now"})


def of_method(kind: str, name: str) -> list[str]:
    values = next(values for of, values in VALUES.items() if of.__name__ == kind)
    return [f"{value}.{name}({arguments})" for value in values for arguments in ARGUMENTS]


def of_filter(name: str) -> list[str]:
    return [f"({value}) | {name}({arguments})" for value in FILTERED for arguments in ARGUMENTS]


def siege(expressions: list[str]) -> None:
    """Render each, and see how large this process and the template's become."""
    for first in range(0, len(expressions), TOGETHER):
        _siege(expressions[first : first + TOGETHER])


def _siege(expressions: list[str]) -> None:
    ours = psutil.Process()
    before = ours.memory_info().rss
    sources = [f"{{{{ {each} }}}}" for each in expressions]
    choices = "".join(f"{{% if n == {n} %}}{source}{{% endif %}}" for n, source in enumerate(sources))
    chat = ChatTemplate(choices)
    for n, source in enumerate(sources):
        begun = time.monotonic()
        with contextlib.suppress(ModelInvalid):
            assert len(chat.render(CONVERSATION, {**VARIABLES, "n": n})) <= MAX_CHARS
        assert time.monotonic() - begun < LONGEST_S, source
        assert ours.memory_info().rss - before < 8 * MAX_CHARS, source
    assert peak(chat) <= MAX_MEMORY


def constant(expression: str) -> None:
    """Give Jinja a constant, which it computes when it compiles."""
    ours = psutil.Process()
    before = ours.memory_info().rss
    with contextlib.suppress(ModelInvalid):
        assert len(ChatTemplate(f"{{{{ {expression} }}}}").render(CONVERSATION)) <= MAX_CHARS
    assert ours.memory_info().rss - before < 8 * MAX_CHARS


def peak(chat: ChatTemplate) -> int:
    """The most bytes that its process, the last one, ever had; 0 where a limit has just ended it."""
    process = chat._process
    if not process.is_alive():
        return 0
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_SECONDS", SECONDS)


def test_the_lists_are_whole() -> None:
    assert {"ljust", "expandtabs", "format", "replace", "join", "zfill"} <= set(names(str))
    assert {"indent", "format", "replace", "join", "center", "tojson", "wordwrap", "urlize"} <= set(FILTERS)
    assert len(METHODS) > 120 and len(FILTERS) > 50


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_method(kind: str, name: str) -> None:
    siege(of_method(kind, name))


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter(name: str) -> None:
    siege(of_filter(name))
    constant(f"'a' | {name}({HUGE})")
    constant(f"('%{HUGE}d' | {name}(1)) ~ ('a' * 4000000 | {name}('', 'x' * 4000))")


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_by_map(name: str) -> None:
    siege([f"range(99999) | map('string') | map('{name}', huge) | list", f"[items] | map('{name}') | join"])


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator(operator: str) -> None:
    values = [*FILTERED, "(one / 2)", "long.encode()"]
    siege([f"({left}) {operator} ({right})" for left in values for right in values])
    constant(f"'%{HUGE}d' {operator} {HUGE}")
    constant(f"'a' {operator} {HUGE}")


def test_globals() -> None:
    siege([f"{name}({arguments})" for name in GLOBALS for arguments in ARGUMENTS])


def test_tests() -> None:
    siege([f"({value}) is {name}" for name in TESTS for value in ("long", "one", "items", "map")])


@pytest.mark.parametrize(
    "expression",
    ["1 + " * 100_000 + "1", "'a' * 10 ~ " * 10_000 + "1", "[" * 90 + "]" * 90, "9 ** 9 ** 9 ** 9"],
    ids=["sum", "texts", "nested", "power"],
)
def test_a_template_that_is_large_itself(expression: str) -> None:
    constant(expression)


def test_the_process_cannot_be_left_behind() -> None:
    """One that computes when its parent is killed ends by its own limit."""
    program = (
        "from localspec.models.template import ChatTemplate as T\n"
        "from localspec.protocol.requests import Message\n"
        "t = T('{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}');"
        "print(t._process.pid, flush=True); t.render([Message('user', 'Hi')])"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(60)
    assert not child.is_running()
