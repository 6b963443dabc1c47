"""The line of a setting in its file, as messages name it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from localspec.config import load_config
from localspec.config_file import ConfigFile
from localspec.errors import InvalidOptions
from localspec.origin import Place, dotted, is_deep, key_of, line_of

TEXT = """\
# engine.threads = 1
model_dirs = [
  "[daemon]",  # port = 3
]
'options' . "k" = 3
daemon = { port = 0 }

  [engine] # all of them
n_ctx=1

[models."a.b:c"]
temperature = 0.5
[[ more . 'and "more"' ]]
"x = y" = 1
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("engine", "threads"), None),
        (("model_dirs",), 2),
        (("options", "k"), 5),
        (("options",), 5),
        (("daemon", "port"), 6),
        (("engine",), 8),
        (("engine", "n_ctx"), 9),
        (("n_ctx",), None),
        (("models", "a.b:c"), 11),
        (("models", "a.b:c", "temperature"), 12),
        (("models", "a", "temperature"), None),
        (("more",), 13),
        (("more", 'and "more"', "x = y"), 14),
        ((), None),
    ],
)
def test_the_line_of_a_key_is_found(place: Place, line: int | None) -> None:
    assert line_of(TEXT, place) == line


VALUES = '''\
model_dirs = [
[engine], # ]
"""
[engine]
n_ctx = 2
""", "]", {x = '{'}]
[options] # don't [
stop = """a\\"""
k = 3""""
k = 99 # """
model = "#["
[engine]
n_ctx = 3
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [(("options", "k"), 10), (("options", "model"), 11), (("engine",), 12), (("engine", "n_ctx"), 13)],
)
def test_what_a_value_of_several_lines_says_is_no_key(place: Place, line: int) -> None:
    assert line_of(VALUES, place) == line
    assert line_of(VALUES.replace("\n", "\r\n"), place) == line


@pytest.mark.parametrize("place", [("engine", "n_ctx"), ("models", 'a."b"\n\0é', "k"), ("", "a b")])
def test_a_dotted_key_is_read_as_it_was(place: Place) -> None:
    assert key_of(f"{dotted(place)} = 0") == place
    assert tomllib.loads(f"[{dotted(place)}]")


def test_what_is_no_key_has_no_parts() -> None:
    for text in ("", "a", "a = 1\nb = 2", "[", ".".join("a" * 20_000) + " = 0"):
        assert key_of(text) == ()


def test_a_key_may_have_parts_but_not_without_end() -> None:
    assert not is_deep(".".join("a" * 16)) and is_deep(".".join("a" * 17))
    assert not is_deep(f"x = '{'.'.join('a' * 99)}'")


@pytest.mark.parametrize(
    ("text", "line", "command"),
    [
        ("# mine\n[engine]\nn_ctx = 1\nthreads = -1\n", 4, "engine.threads"),
        ("[engine]\nnctx = 1\n", 2, "engine.nctx"),
        ("model_dirs = 1\n", 1, "model_dirs"),
        ("\nnctx = 1\n", 2, "nctx"),
        ('[models."a.b"]\n\nk = 21\n', 3, """'models."a.b".k'"""),
        ('[workspaces."/a b\'"]\nk = 21\n', 2, """'workspaces."/a b'"'"'".k'"""),
    ],
)
def test_the_remedy_names_the_line_and_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, command: str
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = ConfigFile()
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(InvalidOptions) as caught:
        load_config()
    unset = f"`localspec config set {command} --unset`"
    assert caught.value.remedy == f"Correct line {line} of {file.path}: `localspec config edit`, or {unset}."
