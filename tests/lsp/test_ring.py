"""The pieces of other files that are sent."""

from __future__ import annotations

from localspec.lsp.documents import BLOCK_CHARS, BLOCKS, Document, Ring
from localspec.protocol.requests import File


def opened(*names: str, **more: str) -> dict[str, Document]:
    texts = {name: "".join(f"{name} {line}\n" for line in range(200)) for name in names} | more
    uris = {f"file:///{name}": text for name, text in texts.items()}
    return {uri: Document(uri, "python", text) for uri, text in uris.items()}


def pieces_of(ring: Ring, documents: dict[str, Document], but: str = "") -> list[str]:
    """The first line of each piece."""
    return [file.text.partition("\n")[0] for file in ring.blocks(documents, but, lambda _: True)]


def test_the_newest_come_first_and_two_of_a_file() -> None:
    ring, documents = Ring(), opened("a", "b")
    for name, line in (("a", 0), ("b", 70), ("a", 130), ("a", 65), ("a", 127)):
        ring.touch(f"file:///{name}", line)
    assert pieces_of(ring, documents) == ["a 64", "a 128", "b 64"]
    assert pieces_of(ring, documents, "file:///a") == ["b 64"]
    ring.forget("file:///b")
    assert pieces_of(ring, documents) == ["a 64", "a 128"]


def test_a_piece_has_64_lines_and_its_files_path() -> None:
    ring, documents = Ring(), opened("a")
    ring.touch("file:///a", 100)
    (file,) = ring.blocks(documents, "", lambda _: True)
    assert file == File("/a", "".join(f"a {line}\n" for line in range(64, 128)))


def test_of_more_than_sixteen_half_goes_at_once() -> None:
    names = [f"{number}" for number in range(40)]
    ring, documents = Ring(), opened(*names)
    oldest = []
    for number, name in enumerate(names):
        ring.touch(f"file:///{name}", 0)
        pieces = pieces_of(ring, documents)
        assert pieces == [f"{name} 0" for name in reversed(names[: number + 1])][: len(pieces)]
        assert min(number + 1, BLOCKS // 2) <= len(pieces) <= BLOCKS
        oldest.append(pieces[-1])
    assert len(set(oldest)) == 4


def test_what_may_not_be_sent_or_is_no_more_is_left_out() -> None:
    ring, documents = Ring(), opened("a", "b", long="x" * 2 * BLOCK_CHARS, blank="\n \n")
    for name in ("a", "b", "c", "long", "blank"):
        ring.touch(f"file:///{name}", 0)
    ring.touch("file:///a", 199)

    def allowed(document: Document) -> bool:
        return document.path != "/b"

    assert [(file.path, len(file.text)) for file in ring.blocks(documents, "", allowed)] == [
        ("/a", len("a 192\n") * 8),
        ("/long", BLOCK_CHARS),
        ("/a", len("a 0\n") * 10 + len("a 10\n") * 54),
    ]
