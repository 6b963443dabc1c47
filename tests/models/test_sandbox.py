"""Chat templates cannot make much of little: each method, filter, operator and global, with hostile operands.

The names are those of Python's types and of Jinja's environment, so that none is forgotten.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.models import template
from localspec.models.template import EAGER, LAZY, METHODS, Failed, Program, Refusal

ENVIRONMENT = ImmutableSandboxedEnvironment(extensions=[loopcontrols])
HUGE = 1_500_000_000
MOST = 1 << 30
"""bytes: a little more than MAX_MADE and what one operation may make, at one to four bytes a character"""
VARIABLES: dict[str, object] = {
    "a": "a",
    "percent": "%1500000000d",
    "percents": "%s" * 1000,
    "stars": "%*d",
    "braces": "{:1500000000}",
    "nested": "{0:{1}}",
    "fields": "{0}" * 1000,
    "one": 1,
    "huge": HUGE,
    "map": {"a": 1},
}
"""not constants, which Jinja would compute when it compiles"""
FORMATS = ("percent", "percents", "stars", "braces", "nested", "fields")
VALUES = ("a", "long", "percent", "braces", "items", "map", "huge", "one / 2", "range(many)")
OPERANDS = ("", "huge", "huge, a", "one, huge", "a, long", "'', long", "items", "width=huge", "indent=huge")
KINDS: dict[type, tuple[str, ...]] = {
    str: ("a", "long"),
    bytes: ("a.encode()",),
    list: ("items",),
    tuple: ("(one,)",),
    dict: ("map", "dict"),
}
KINDS |= {int: ("one", "(7 ** (one * 999))"), float: ("(one / 2)",)}
METHODS_OF = {f"{kind.__name__}.{name}": kind for kind in KINDS for name in dir(kind) if name[0] != "_"}
FILTERS = sorted(ENVIRONMENT.filters)
TESTS = sorted(name for name in ENVIRONMENT.tests if name.isidentifier())
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "in", "==", "<")


@pytest.fixture(
    autouse=True, params=[pytest.param(1, marks=pytest.mark.slow, id="large"), pytest.param(100, id="small")]
)
def _scale(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The limits, and the long operands with them, a hundredth where memory is not looked at."""
    scale = request.param
    monkeypatch.setattr(template, "MAX_SECONDS", 0.2 if scale == 1 else 0.02)
    for name in ("MAX_CHARS", "MAX_MADE"):
        monkeypatch.setattr(template, name, getattr(template, name) // scale)
    monkeypatch.setitem(VARIABLES, "many", 99_999 // scale)
    monkeypatch.setitem(VARIABLES, "long", "a" * (1_000_000 // scale))
    monkeypatch.setitem(VARIABLES, "items", ["b" * (1_000_000 // scale)] * 1000)
    yield
    assert scale > 1 or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < MOST


def siege(*expressions: str) -> None:
    """Run each: it fails, or its text is within the limit."""
    choices = "".join(
        f"{{% if n == {n} %}}{{{{ {each} }}}}{{% endif %}}" for n, each in enumerate(expressions)
    )
    program = Program(choices)
    for n in range(len(expressions)):
        with contextlib.suppress(Failed, Refusal):
            assert len(program.run({**VARIABLES, "n": n})) <= template.MAX_CHARS


def test_the_lists_name_what_there_is() -> None:
    assert set(FILTERS) >= LAZY | EAGER
    assert {name for name in METHODS if any(hasattr(kind, name) for kind in KINDS)} >= METHODS - {
        "changed", "cycle", "next", "reset"
    }  # fmt: skip
    assert template.MAX_MADE >= 2 * template.MAX_CHARS > template.ITEM


@pytest.mark.parametrize("name", METHODS_OF)
def test_a_method(name: str) -> None:
    method = name.partition(".")[2]
    siege(*(f"{value}.{method}({each})" for value in KINDS[METHODS_OF[name]] for each in OPERANDS))


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter(name: str) -> None:
    siege(*(f"({value}) | {name}({each})" for value in VALUES for each in OPERANDS))
    siege(f"range(many) | map('string') | map('{name}', huge) | list", f"items | map('{name}') | join")
    siege(f"'a' | {name}({HUGE})", f"('a' * {template.MAX_CHARS // 2}) | {name}('', 'x' * 4000)")


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator(operator: str) -> None:
    siege(*(f"({left}) {operator} ({right})" for left in VALUES for right in VALUES))
    siege(f"'%{HUGE}d' {operator} {HUGE}", f"'a' {operator} {HUGE}", f"9 {operator} {HUGE}")


@pytest.mark.parametrize("name", sorted({*ENVIRONMENT.globals, "raise_exception", "strftime_now"}))
def test_a_global(name: str) -> None:
    siege(*(f"{name}({each})" for each in OPERANDS))


def test_tests() -> None:
    siege(*(f"({value}) is {name}" for name in TESTS for value in VALUES))


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "1 + " * 10_000 + "1 }}",
        "{{ 9 ** 9 ** 9 ** 9 ** 9 ** 9 }}",
        "{% set x = [long] * 100000 %}{{ x }}",
        "{% set x = [long] * 100000 %}{{ {'a': x} }}",
        "{% set x = [long] * 100000 %}{{ raise_exception(x) }}",
        "{% set x = [long] * 100000 %}{{ x | tojson }}",
        "{% set x = [long] * 100000 %}{{ x | sort | length }}",
        "{% set x = namespace(x=[long] * 100000) %}{{ x }}{{ [x] }}",
        "{% set x = [long] %}" + "{% set x = [x, x] %}" * 60 + "{{ x }}",
        "{% set x = ['a'] %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x, long[1:]] %}{% endfor %}",
        "{% set n = namespace(x=0) %}{% for i in range(99999) %}{% set n.x = [n.x, [" + "1," * 9999 + "]] %}"
        "{% endfor %}",
        "{% set r = range(99999) %}{% for i in r recursive %}{{ loop(r) }}{% endfor %}",
        "{% autoescape true %}{{ long }}{% endautoescape %}",
        "{% for i in range(99999) %}{{ long * 10 }}{% endfor %}",
        "{% set s = 'ab' %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 40,
        "{% set s = 'ab' %}" + "{% set s = s | replace('', s) %}" * 40,
        "{% macro f(s) %}{{ s }}{{ s }}{% endmacro %}{% set s = 'ab' %}" + "{% set s = f(s) %}" * 40,
        "{% set s = 'ab' %}" + "{% set s = s ~ s %}" * 40,
        "{% set n = 7 %}" + "{% set n = n * n %}" * 40,
    ],
)  # fmt: skip
def test_a_large_whole(source: str) -> None:
    with pytest.raises((Failed, Refusal)):
        Program(source).run(VARIABLES)


@pytest.mark.parametrize("form", FORMATS)
def test_formatting_is_measured(form: str) -> None:
    siege(*(f"{form}.format({each})" for each in OPERANDS))


def test_formatting() -> None:
    assert Program("{{ '<{}{}>{{}}{0[0]}{x!r}'.format(a, one, x=[one]) }}").run(VARIABLES) == "<a1>{}a[1]"
    assert Program("{{ 'Tool: {}'.format(a) }}").run(VARIABLES) == "Tool: a"
    for source in (
        "{{ '{:>5}'.format(a) }}",
        "{{ '{0[}]:>5}'.format(a) }}",
        "{{ '%s' % a }}",
        "{{ '%s' | format(a) }}",
    ):
        with pytest.raises(Failed, match="is not permitted"):
            Program(source).run(VARIABLES)
