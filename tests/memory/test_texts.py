"""Which files of a tree are learned, and which directory is its workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.errors import InvalidOptions
from localspec.memory.texts import MAX_BYTES, may_learn, read_text, text_files
from localspec.memory.workspace import workspace_of


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with everything in it that is left out."""
    root = tmp_path / "repo"
    for path, text in {
        ".gitignore": "*.log\n/build/\n!keep.log\nsecret*\n",
        "a.py": "print()\n",
        "x.log": "no\n",
        "keep.log": "yes\n",
        "build/out.py": "no\n",
        "src/build/in.py": "yes\n",
        "src/.gitignore": "generated/\n!y.log\n",
        "src/y.log": "yes\n",
        "src/generated/z.py": "no\n",
        "src/deep/er/w.py": "yes\n",
        "src/secret.txt": "no\n",
        ".git/config": "no\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "outside.py").write_text("no\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    (root / "loop").symlink_to(root)
    return root


def names(path: Path, root: Path) -> list[str]:
    return [file.relative_to(root.resolve()).as_posix() for file in text_files(path)]


def test_what_git_ignores_is_left_out(tree: Path) -> None:
    assert names(tree, tree) == [
        ".gitignore",
        "a.py",
        "keep.log",
        "src/.gitignore",
        "src/build/in.py",
        "src/deep/er/w.py",
        "src/y.log",
    ]


def test_the_gitignore_files_above_a_directory_count(tree: Path) -> None:
    assert names(tree / "src", tree) == [
        "src/.gitignore",
        "src/build/in.py",
        "src/deep/er/w.py",
        "src/y.log",
    ]


def test_a_file_that_is_named_is_taken(tree: Path) -> None:
    assert names(tree / "x.log", tree) == ["x.log"]
    assert list(text_files(tree / "nothing")) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"text\n", "text\n"),
        ("é".encode(), "é"),
        (b"", None),
        (b"\x7fELF\0\0", None),
        (b"\xff\xfe", None),
        (b"x" * MAX_BYTES, "x" * MAX_BYTES),
        (b"x" * (MAX_BYTES + 1), None),
    ],
    ids=["text", "utf-8", "empty", "binary", "no utf-8", "1 MiB", "more"],
)
def test_only_text_is_read(tmp_path: Path, content: bytes, text: str | None) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_text(tmp_path / "file") == text


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "id_ed25519", "server.pem", "shadow", "vault.kdbx", ".ENV", "prod.tfvars"]
)
def test_files_of_secrets_are_not_learnt_even_if_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 AAAA\n")
    (tmp_path / "credentials.py").write_text("x = 1\n")
    assert {path.name for path in text_files(tmp_path)} == {"id_ed25519.pub", "credentials.py"}
    with pytest.raises(InvalidOptions, match="secrets"):
        list(text_files(tmp_path / name))


def test_what_is_no_file_is_no_text(tmp_path: Path) -> None:
    assert read_text(tmp_path) is None and read_text(tmp_path / "nothing") is None
    os.mkfifo(tmp_path / "pipe")
    assert list(text_files(tmp_path)) == []


def test_a_workspace_is_the_git_root_by_its_real_path(tree: Path, tmp_path: Path) -> None:
    assert workspace_of(tree / "src" / "deep") == tree.resolve()
    (tmp_path / "other").symlink_to(tree / "src")
    assert workspace_of(tmp_path / "other") == tree.resolve()
    (tree / "src" / ".git").write_text("gitdir: elsewhere\n")  # a submodule
    assert workspace_of(tree / "src" / "deep") == (tree / "src").resolve()


def test_outside_of_git_there_is_no_workspace() -> None:
    assert workspace_of(Path("/")) is None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("a.py", True),
        ("keep.log", True),
        ("src/y.log", True),
        ("src/not/there/yet.py", True),
        ("x.log", False),
        ("new.log", False),
        ("build/out.py", False),
        ("build/deep/keep.log", False),
        ("src/generated/z.py", False),
        ("src/secret.txt", False),
        (".env", False),
        ("src/id_ed25519", False),
        (".git/COMMIT_EDITMSG", False),
    ],
)
def test_what_an_editor_has_open_is_learnt_unless_ignored(tree: Path, path: str, allowed: bool) -> None:
    assert may_learn(tree / path) == allowed


def test_a_link_to_a_secret_is_one(tree: Path) -> None:
    (tree / ".env").write_text("TOKEN=x")
    (tree / "settings.py").symlink_to(tree / ".env")
    assert not may_learn(tree / "settings.py")


def test_outside_of_a_repository_a_name_is_all_there_is(tmp_path: Path) -> None:
    assert may_learn(tmp_path / "a.py") and not may_learn(tmp_path / "key.pem")


def test_what_git_ignores_in_this_clone_alone_is_not_learnt(tree: Path) -> None:
    """Of .gitignore the last word is."""
    (tree / ".git" / "info").mkdir(parents=True)
    (tree / ".git" / "info" / "exclude").write_text("mine.py\nkeep.log\n")
    (tree / "mine.py").write_text("a = 1\n")
    assert not may_learn(tree / "mine.py") and may_learn(tree / "keep.log")
    assert "mine.py" not in {path.name for path in text_files(tree)}
