"""Ceilings of lines of code (:mod:`.measures`) by package; ``.``: the modules beside the packages.

A ceiling rises only in a commit in which another one of its area falls by as much, or by lines of a room.
"""

from __future__ import annotations

CEILINGS = {
    "assets": 1861,
    "localspec/.": 917,
    "localspec/agent": 444,
    "localspec/backends": 1834,
    "localspec/bench": 165,
    "localspec/cli": 2235,
    "localspec/client": 480,
    "localspec/completion": 304,
    "localspec/constraints": 445,
    "localspec/daemon": 2706,
    "localspec/doctor": 325,
    "localspec/engine": 2468,
    "localspec/http": 2434,
    "localspec/hub": 599,
    "localspec/lsp": 696,
    "localspec/memory": 825,
    "localspec/models": 2237,
    "localspec/protocol": 956,
    "localspec/ranks": 579,
    "localspec/service": 197,
    "localspec/speculation": 1305,
    "localspec/tools": 694,
    "localspec/tui": 2539,
    "localspec/worker": 427,
    "plugins/llm": 93,
    "plugins/lsp": 0,
    "plugins/nvim": 1000,
    "plugins/vscode": 365,
    "tests": 30819,
}
TOTALS = {
    "assets": 1798,
    "localspec": 25745,
    "plugins/llm": 93,
    "plugins/nvim": 1000,
    "plugins/vscode": 365,
    "tests": 30819,
}
"""bounds of the sums of ceilings by area, which only fall"""
ROOMS = {"heads": 900, "next edit": 900, "fast rounds": 150}
"""lines of code of new capabilities"""
RAISED: dict[str, list[tuple[int, str, str]]] = {
    "localspec/daemon": [(3, "localspec/models", "the end of a daemon that clients cannot find")],
    "localspec/ranks": [(2, "localspec/completion", "an odd variable"), (3, "fast rounds", "uncopied rows")],
    "localspec/backends": [
        (7, "fast rounds", "rows without a copy"),
        (12, "localspec/http", "sequences padded between those of a round, for `GET /slots`"),
        (3, "fast rounds", "the same"),
    ],
    "localspec/speculation": [
        (19, "fast rounds", "a nucleus without weighing all tokens; bounded drafting"),
        (24, "fast rounds", "the price of another width"),
        (35, "localspec/cli", "the same, for `config edit`"),
        (2, "localspec/backends", "the same"),
    ],
    "assets": [(63, "fast rounds", "the own time of a round; a cold memory; changes of the width")],
    "localspec/engine": [
        (9, "fast rounds", "fewer rewrites of the caches of chats"),
        (5, "localspec/.", "changes of the width in a request's books"),
        (1, "fast rounds", "the price of slots between those of a round"),
        (2, "localspec/speculation", "the same; a change of width by forced tokens"),
    ],
    "localspec/hub": [(5, "localspec/tui", "pip's own index, without a host's name")],
    "localspec/memory": [(1, "localspec/tui", "waiting texts of a source with another's tag")],
    "localspec/tools": [(2, "localspec/tui", "names of verbs with their nouns")],
    "localspec/worker": [(1, "localspec/tui", "names of verbs with their nouns")],
}
"""package: [(lines, the package or room that they are taken from, reason)]"""
FAULTS = {
    "names bound twice": 0,
    "imports of itself": 0,
    "inner imports of what is loaded": 0,
    "inner imports": 31,
    "constants below functions": 177,
    "participles": 0,
    "class names of several modules": 1,
}
"""numbers of faults (:mod:`.faults`), which only fall"""
