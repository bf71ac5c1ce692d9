"""One module reads a project's files. Every other module that opens files says here what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

import patchq

PACKAGE = Path(patchq.__file__).parent
#: What opens a file, and what copies one.
OPENS = {
    "open",
    "read_bytes",
    "read_text",
    "read_or_none",
    "read_limited",
    "sha256_file",
    "copyfile",
    "copy2",
    "copytree",
}
#: Packages of which no module reads a project's files.
PACKAGES = {
    "system": "the reader itself, and what it is made of",
    "adopt": "what the user names: patches, folders and mails to take over",
    "environment": "the machine, its environments and images",
    "git": "repositories, whose files git.owners and project.private check before git reads them",
}
#: Modules that open other files.
MODULES = {
    "state below .patchq": {
        "build.reference", "rebase.state", "resolutions.propose", "cli.verdicts", "contribute.dossier", "contribute.submit", "project.cached",
        "kernels._cache", "mutation.known", "project.journal", "project._private", "project.stack", "proofs.prove",
        "store._heal",
    },
    "wheels and archives, by their hash, and what was built": {
        "build.contents", "build.dist", "build.image", "build._source", "build.zipped", "formats.tar", "kernels.ahead",
        "thin.build", "sources.archive", "sources.index", "sources._partial", "sources.pins", "store.pinning",
    },
    "temporary files of its own": {
        "replay._machine", "resolutions._programs", "together.concurrent", "merge.rerere", "contribute.proposal", "kernels._compiling", "proofs._forked",
        "proofs.run", "stacks.export",
    },
    "what the user names": {
        "recipes.entries", "replay.dockerfile", "replay.scripts", "replay.limits", "rebase.resolve", "cli.commands.report", "contribute.follow", "report.bench", "store.bundle",
    },
    "patchq's own package, or an installed one": {"kernels.left", "project.own", "project.scaffold", "report.page"},
    "parts of thin wheels, which read what is installed": {"thin._base", "thin._place", "thin._serve"},
    "the null device": {"cli.__init__", "cli.terminal"},
}  # fmt: skip


def opening(path: Path) -> bool:
    """Return whether a module calls something that opens a file."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return bool(names & OPENS)


def test_who_opens_files() -> None:
    modules = {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in PACKAGE.rglob("*.py")}
    found = {name for name, path in modules.items() if name.split(".")[0] not in PACKAGES and opening(path)}
    assert found == {module for modules in MODULES.values() for module in modules}
