"""The commands in the documentation are ones that this patchq takes: verbs, options and how many arguments."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from docs_commands import FENCE, PAGES, commands
from kit import ROOT
from patchq.cli import VERBS, cli
from patchq.formats._checkrules import RULES


def parse(line: str) -> None:
    """Let click parse it; nothing is run."""
    words = [w.rstrip("….") or "X" for w in shlex.split(line)[1:]]
    words = [w for n, w in enumerate(words) if w != "X" or words[n - 1].startswith("-")]
    ctx: click.Context = click.Context(cli, info_name="patchq")
    group: click.Group = cli
    while True:
        parser = group.make_parser(ctx)
        _, rest, _ = parser.parse_args(list(words)) if words[:1] and words[0].startswith("-") else ({}, words, [])
        if not rest:
            return
        command = group.get_command(ctx, rest[0])
        assert command, f"no verb {rest[0]}"
        words, ctx = rest[1:], click.Context(command, info_name=rest[0], parent=ctx)
        if not isinstance(command, click.Group):
            values, left, _ = command.make_parser(ctx).parse_args(list(words))
            assert not left, f"too many arguments: {left}"
            assert values is not None
            return
        group = command
        if not words:
            return


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_parse(page: Path) -> None:
    wrong = []
    for line in commands(page):
        if "VERB" in line:
            continue  # any of them
        plain = re.sub(r"[\[\]]", "", line)
        try:
            parse(plain)
        except (click.UsageError, ValueError, AssertionError) as error:
            wrong.append(f"{line}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line", ["patchq nope", "patchq apply --nope", "patchq show one two", "patchq bench nope", "patchq show a -m"]
)
def test_what_is_no_command_is_noticed(line: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(line)


def test_every_verb_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    ctx = click.Context(cli)
    assert [v for v in cli.list_commands(ctx) if f"`{v}" not in text] == []


def test_every_rule_of_check_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    table = text.partition("## What `check` looks at")[2].partition("\n## ")[0]
    assert [rule for rule in (*RULES, "pattern", "cve") if f"`{rule}`" not in table] == []


def test_the_list_of_commands_has_each_commands_own_summary() -> None:
    own = {}
    for name, (module, _) in VERBS.items():
        command = importlib.import_module(f"patchq.cli.commands.{module}").command
        own[name] = command.help.partition("\n\n")[0].strip()
    assert own == {name: summary for name, (_, summary) in VERBS.items()}


def test_links_between_pages_resolve() -> None:
    broken = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text())
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            there = (page.parent / path).resolve() if path else page
            if not there.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and there.suffix == ".md":
                heads = {
                    re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-")
                    for h in re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                }
                if anchor not in heads:
                    broken.append(f"{page.name}: {target}")
    assert broken == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_modules_and_packages_that_a_page_names_exist(page: str) -> None:
    """From the project's root, or within the package: ``tests/kit.py``, ``merge/target.py``, `` `stacks/` ``."""
    text = (ROOT / page).read_text()
    named = set(re.findall(r"[\w.][\w./-]*\.py\b", text)) | set(re.findall(r"`(\w[\w./-]*/)`", text))
    assert named
    assert sorted(n for n in named if not any((at / n).exists() for at in (ROOT, ROOT / "tools" / "patchq"))) == []
