"""The commands that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

from kit import ROOT

PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(patchq (?!@)[^`\n]+)`")


def commands(page: Path) -> list[str]:
    """What a reader may type: patchq's lines of shell blocks and transcripts, and whole commands in the text."""
    text = page.read_text()
    found = []
    for language, block in FENCE.findall(text):
        # A quoted text may go over several lines.
        lines = re.sub(r"'[^'\n]*(?:\n[^'\n]*)+?'(?=\n|$)", "'X'", block.replace("\\\n", " ")).splitlines()
        if language in ("sh", "bash", "console", ""):
            prefix = "" if language in ("sh", "bash") else "$ "
            found += [
                line.removeprefix(prefix).split(" # ")[0].strip()
                for line in lines
                if line.startswith(prefix + "patchq ")
            ]
    found += [c.strip() for c in _INLINE.findall(FENCE.sub("", text))]
    return [
        part.strip() for line in found for part in re.split(r"&&|\|\||;|\|", line) if part.strip().startswith("patchq ")
    ]
