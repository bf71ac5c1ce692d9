"""PR report: a folder with a pull request's mails, title, body and check results."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from patchq.contribute.proposal import Owner, Proposal, branch_ref
from patchq.errors import FormatError
from patchq.formats import toml
from patchq.formats.render import render
from patchq.project.project import Project
from patchq.system import fsio

#: Content to fill into a template's section, by the start of its heading.
_ASKS = {
    "purpose": "details",
    "description": "details",
    "what does this pr do": "details",
    "motivation": "details",
    "details": "details",
    "overview": "summary",
    "summary": "summary",
    "claims": "claims",
    "validation": "validation",
    "test plan": "plan",
    "test result": "result",
    "tests": "validation",
    "testing": "validation",
    "how was this tested": "validation",
    "reviewer notes": "notes",
    "notes": "notes",
    "additional": "notes",
}
OWNER = "owner.toml"


def folder_of(project: Project, slug: str) -> Path:
    """Return the folder of a PR report."""
    return project.layout.private / "pr" / slug


def read_owner(folder: Path) -> Owner:
    """Read the pull request's owner from ``owner.toml`` in a folder. If the file is missing, return an empty owner.

    :raises FormatError: if the file is malformed.
    """
    path = folder / OWNER
    data = fsio.read_or_none(path)
    if data is None:
        return Owner()
    try:
        raw = toml.loads(data)
        fields = {}
        for key, value in raw.items():
            fields[key.replace("-", "_")] = str(value).strip()
        if "\n" in fields.get("name", "") + fields.get("email", "") + fields.get("assisted_by", ""):
            raise ValueError("a name or an address has more than one line")
        return Owner(**fields)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: {error}", hint=f"correct the file, or remove it: {path}") from None


def write_dossier(project: Project, proposal: Proposal) -> Path:
    """Write the folder of a PR report. An existing ``owner.toml`` is kept.

    :returns: the folder.
    """
    folder = folder_of(project, proposal.slug)
    mails = proposal.mails(project.store)
    for old in folder.glob("*.patch"):
        if old.name not in mails:
            old.unlink()
    files = dict(mails)
    files["title.txt"] = f"{proposal.title}\n".encode()
    files["body.md"] = body(proposal).encode()
    files["range-diff.txt"] = proposal.range_diff.encode()
    files["dossier.md"] = render(
        "pr/dossier.md.j2", p=proposal, store=project.layout.store, ref=branch_ref(proposal.slug)
    ).encode()
    files["dossier.json"] = fsio.dump_json({"schema": "patchq/pr/1", **as_json(proposal)})
    if not (folder / OWNER).exists():
        files[OWNER] = render("pr/owner.toml.j2", what="pull request", command="pr").encode()
    for name, data in files.items():
        fsio.write_atomic(folder / name, data)
    return folder


def as_json(proposal: Proposal) -> dict[str, Any]:
    """Return a PR report as JSON data for the schema ``patchq/pr/1``, without the field that names the schema."""
    found = asdict(proposal)
    rules = found.pop("rules")
    found["rules"] = {}
    for key in ("template", "hooks", "agents"):
        document = rules[key]
        found["rules"][key] = document and {"path": document["path"], "replacement": document["replacement"]}
    duplicates = found.pop("duplicates")
    found["duplicates"] = {
        "searched": proposal.duplicates.searched.value,
        "asked": duplicates["asked"],
        "items": duplicates["items"],
    }
    found["problems"], found["not_run"], found["branch"] = proposal.problems, proposal.not_run, proposal.branch
    found["verdicts"] = []
    for v in proposal.verdicts:
        row = {"patch": v.proof.name, "state": v.state, "message": v.message, "files": v.proof.files}
        found["verdicts"].append(row)
    return found


def body(proposal: Proposal) -> str:
    """Render the pull request's body from upstream's template, or from a default template if upstream has none."""
    contents = {}
    for key in ("summary", "claims", "details", "plan", "result", "notes"):
        contents[key] = render(f"pr/{key}.md.j2", p=proposal).strip()
    contents["validation"] = f"{contents['plan']}\n\n{contents['result']}".strip()
    template = proposal.rules.template
    text = fill(template.text if template else render("pr/body.md.j2"), contents)
    if proposal.owner.assisted_by:
        text = re.sub(r"^(\s*- )\[ \](.*\bAI assistance\b)", r"\1[x]\2", text, flags=re.MULTILINE)
    return text


def fill(template: str, contents: Mapping[str, str]) -> str:
    """Fill the sections of a template whose headings are known, and leave the other sections unchanged.

    Content that has no section is put into the section for details, or else into the first filled section. If
    no heading is known, all content is put before the template. Comments in filled sections are removed;
    checkboxes stay for the user.
    """
    lines, sections = template.split("\n"), _sections(template)
    asked = [(start, end, ask) for start, end, ask in sections if ask in contents]
    keys = {ask for *_, ask in asked}
    covered = keys | ({"plan", "result"} if "validation" in keys else set())
    if {"plan", "result"} <= keys:
        covered |= {"validation"}
    if "details" in keys:
        covered |= {"summary", "claims"}
    rest = []
    for key in ("details", "validation", "notes"):
        if key not in covered and contents[key]:
            rest.append(contents[key])
    home = next((n for n, (*_, ask) in enumerate(asked) if ask == "details"), 0)
    for number, (start, end, ask) in reversed(list(enumerate(asked))):
        own = _without_comments("\n".join(lines[start:end])).strip()
        parts = [contents[ask], *(rest if number == home else []), own]
        lines[start:end] = ["", *"\n\n".join(filter(None, parts)).split("\n"), ""]
    if not asked:
        lines = [*filter(None, (contents["details"], contents["validation"], contents["notes"])), "", *lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _without_comments(text: str) -> str:
    """Remove closed HTML comments, each with the newline after it."""
    kept = []
    start = 0
    while (begin := text.find("<!--", start)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[start:begin])
        if text[end + 3 : end + 4] == "\n":
            start = end + 4
        else:
            start = end + 3
    return "".join([*kept, text[start:]])


def _sections(template: str) -> list[tuple[int, int, str]]:
    """Return the first line, the end line and the content key of each section of a template.

    A section ends at the next heading or horizontal rule. The key of an unknown heading is empty.
    """
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(template)
    ends: list[int] = []
    for token in tokens:
        if token.map and token.type in ("heading_open", "hr"):
            ends.append(token.map[0])
    ends.append(len(template.split("\n")))
    found = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.map:
            words = re.sub(r"[^a-z ]", "", inline.content.lower()).strip()
            ask = next((value for begin, value in _ASKS.items() if words.startswith(begin)), "")
            found.append((token.map[1], ends[bisect.bisect_left(ends, token.map[1])], ask))
    return found
