from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.adopt.found import ItemOutcome
from patchq.cli.common import emit, exported_json, json_option, offline_option, open_project, set_option, show_exported
from patchq.cli.replayed import as_answer, hint, lines, sentence
from patchq.cli.terminal import echo, show_table
from patchq.errors import UserError
from patchq.names import counted, sh
from patchq.replay.outcomes import Account, NotTaken, StepStatus, short

if TYPE_CHECKING:
    from patchq.adopt.adopt import Imported
    from patchq.adopt.fit import Item


#: Outcomes for which the table of a dry run uses other words than JSON.
_SHOWN = {ItemOutcome.THERE: "already in the tree"}


def _size(_: click.Context, __: click.Parameter, value: str) -> int:
    """Parse a size in bytes, such as ``1000``, ``64K``, ``256M`` or ``2G``."""
    match = re.fullmatch(r"([0-9]{1,18})([KMG]?)", value)
    if not match:
        raise click.BadParameter(f"{value!r} is not a size, such as 64M or 2G.")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _build_arg(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise click.BadParameter(f"{word!r} is not NAME=VALUE.", param_hint="--build-arg")
    return name, value


@click.command("import")
@click.argument("name")
@click.argument("paths", nargs=-1, metavar="[PATH|URL]...")
@click.option("--range", "git_range", default="", metavar="A..B", help="Commits to import; PATH is a repository.")
@click.option(
    "--first-parent", is_flag=True, help="With --range: follow first parents, and make one patch of each merge."
)
@click.option(
    "--pr", "requests", type=int, multiple=True, metavar="N", help="Number of a pull request at upstream's git host."
)
@click.option(
    "--run",
    "commands",
    multiple=True,
    metavar="COMMAND",
    help="Command to run sandboxed on a copy of the tree; its edits become a patch.",
)
@click.option(
    "--context",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Build context of a Dockerfile.  [default: its folder]",
)
@click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="Build argument of a Dockerfile.")
@click.option(
    "--image",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Container image in which files of the release were edited; the edits become patches.",
)
@click.option(
    "--platform", default="", metavar="NAME", help="Platform of the image to use if there are several, such as aarch64."
)
@click.option(
    "--overlay",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of complete files that replace files of the pinned tree.",
)
@click.option(
    "--from-site-packages",
    "site",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with an installed package, whose edited files become patches.",
)
@click.option(
    "-p",
    "--strip",
    type=click.IntRange(0, 99),
    help="Strip level, as for patch -p.  [default: found by matching file names]",
)
@click.option(
    "--directory", default="", metavar="DIR", help="Folder of the tree to which the patches' paths are relative."
)
@click.option(
    "--3way",
    "three_way",
    is_flag=True,
    help="Merge patches that don't apply, if the store contains the version for which they were made.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Print the result for each patch; change nothing.")
@click.option(
    "--most-download",
    default="256M",
    show_default=True,
    callback=_size,
    metavar="SIZE",
    help="With --dry-run: most data to download while searching for releases to which the patches apply.",
)
@click.option("--partial", is_flag=True, help="Import the patches that apply and leave the rest.")
@click.option("--topic", default="", help="Value of the patches' Topic trailer.")
@click.option(
    "--author",
    default="",
    metavar="'NAME <EMAIL>'",
    help="Author of patches without an author (`me`: your git identity).",
)
@click.option("--signoff", "-s", is_flag=True, help="Add your sign-off.")
@offline_option
@set_option
@json_option
def command(
    name: str,
    paths: tuple[str, ...],
    git_range: str,
    first_parent: bool,
    requests: tuple[int, ...],
    commands: tuple[str, ...],
    context: Path | None,
    build_args: tuple[str, ...],
    image: Path | None,
    platform: str,
    overlay: Path | None,
    site: Path | None,
    strip: int | None,
    directory: str,
    three_way: bool,
    dry: bool,
    most_download: int,
    partial: bool,
    topic: str,
    author: str,
    signoff: bool,
    offline: bool,
    set_name: str,
    as_json: bool,
) -> None:
    """Import patches from elsewhere.

    Reads mails, mboxes, plain diffs, folders (series, .patches, numbered), a Debian package, packagers' recipes,
    standard input (-), and the URL of a commit or pull request; with --range, the commits of a repository. Scripts and
    Dockerfiles run sandboxed, without network access: each step that edits the package becomes a patch. Other steps
    that may change the package are listed.
    """
    from patchq.adopt.adopt import ImportRequest, import_patches
    from patchq.adopt.found import ReadOptions, ReplayOptions
    from patchq.adopt.gather import STDIN, AdoptRequest
    from patchq.replay.limits import read_stream

    urls = [p for p in paths if "://" in p]
    if offline and (urls or requests):
        raise click.UsageError("--offline can't download URLs and pull requests (--pr).")
    if not (paths or requests or commands or overlay or site or image):
        if Path(name).exists() or "/" in name:
            message = f"Name the upstream before the path, such as: patchq import NAME {sh(name)}"
        else:
            message = "Missing argument 'PATH': a patch, a folder, a URL, - for standard input, or --pr."
        raise click.UsageError(message)
    if first_parent and not git_range:
        raise click.UsageError("--first-parent needs --range.")
    files = []
    for p in paths:
        if p not in urls:
            # In quotes or after a variable, the shell doesn't expand `~`.
            files.append(Path(p if Path(p).exists() else os.path.expanduser(p)))  # noqa: PTH111
    stdin = b""
    if STDIN in files:
        stdin = read_stream(sys.stdin.buffer, "standard input")
    request = AdoptRequest(
        paths=files,
        stdin=stdin,
        git_range=git_range,
        urls=urls,
        pull_requests=requests,
        commands=commands,
        overlay=overlay,
        site_packages=site,
        image=image,
        platform=platform,
        replaying=ReplayOptions(
            context=context,
            arguments=dict(_build_arg(word) for word in build_args),
            offline=offline,
            most_download=most_download,
        ),
        reading=ReadOptions(strip, directory, three_way),
        first_parent=first_parent,
    )
    wish = ImportRequest(
        topic=topic,
        author=author,
        signoff=signoff,
        partial=partial,
        dry=dry,
        offline=offline,
        most_download=most_download,
    )
    project = open_project(as_json)
    try:
        done = import_patches(project, name, request, wish, set_name=set_name)
    except NotTaken as error:
        message, typed = _worded(error, name)
        raise UserError(message, hint=typed) from None
    _show(done, as_json, name, partial=partial)
    if done.exported.added and not (as_json or done.tried):
        set_option = project.set_option(set_name)
        echo(f"next: `patchq apply{set_option}`; `patchq check` lists what each patch still lacks")


def _show(done: Imported, as_json: bool, name: str, *, partial: bool) -> None:
    if as_json:
        items = []
        for item in done.items:
            items.append({**asdict(item), "account": as_answer(item.account, name) if item.account else None})
        emit("import", {**exported_json(done.exported), "items": items, "dry_run": done.tried})
    elif done.tried:
        _show_tried(done, name)
    else:
        show_exported(done.exported, False, "import")
        _show_again(done, name)
        for line in lines(_accounts(done), name, StepStatus.REFUSED, StepStatus.NOT_UNDERSTOOD):
            echo(line)
        if done.left:
            left = ", ".join(item.where for item in done.left)
            echo(f"adopted {done.adopted} of {done.adopted + len(done.left)}; left out: {left}")
    if done.tried and done.left and not (partial and (done.adopted or done.again)):
        click.get_current_context().exit(3)


def _show_again(done: Imported, name: str) -> None:
    """After a repeated import, print the outcome of each commit or step that the import compared with the stack."""
    from patchq.adopt.fit import CARRIED

    if not done.again:
        return
    for item in done.items:
        if item.account is None or item.outcome in CARRIED:
            outcome = ItemOutcome.NEW if item.is_taken else item.outcome
            echo(f"{name}: {outcome}: {item.name}" + (f": {item.detail}" if item.detail else ""))


def _accounts(done: Imported) -> list[Account]:
    return [item.account for item in done.items if item.account]


def _show_tried(done: Imported, name: str) -> None:
    shown = []
    for item in done.items:
        if not (item.account and item.outcome in (ItemOutcome.LEFT_OUT, ItemOutcome.UNREADABLE)):
            shown.append(item)
    if shown:
        rows = [[item.name, _SHOWN.get(item.outcome, item.outcome), item.where] for item in shown]
        show_table(["patch", "result", "from"], rows)
    printed = _show_details(shown)
    for message in dict.fromkeys(str(item.elsewhere.downloaded) for item in done.items if item.elsewhere):
        if message:
            echo(message)
    for note in dict.fromkeys(note for item in shown for note in item.notes if note not in printed):
        echo(note)
    for line in lines(_accounts(done), name, StepStatus.REFUSED, StepStatus.NOT_UNDERSTOOD, StepStatus.UNRELATED):
        echo(line)
    if done.without_author:
        more = f" and {len(done.without_author) - 1} more" if len(done.without_author) > 1 else ""
        echo(f"{done.without_author[0]}{more} names no author: the import needs --author 'NAME <EMAIL>' or --author me")
    echo(_summary(done))


def _show_details(shown: Sequence[Item]) -> set[str]:
    """Print the messages and conflicts of each patch; return the messages."""
    from patchq.cli.boundary import show_conflict

    printed: set[str] = set()
    for item in shown:
        for message in filter(None, (item.detail, str(item.elsewhere or ""))):
            if message.startswith(item.where):
                line = message
            else:
                line = f"{item.where}: {message}"
            printed.add(line)
            echo(line)
        for conflict in item.conflicts:
            show_conflict(conflict, err=False)
    return printed


def _summary(done: Imported) -> str:
    """Return the last line of a dry run.

    The line contains the word "all" only if the script has no other step that may edit the package.
    """
    statuses = [account.status for account in _accounts(done)]
    open_ones = statuses.count(StepStatus.NOT_UNDERSTOOD)
    if done.again:
        return f"nothing was changed; the import gives {_counts(done)}"
    considered = skipped = 0
    for item in done.items:
        if item.outcome != ItemOutcome.LEFT_OUT:
            considered += 1
        elif not item.account:
            skipped += 1
    if done.left:
        message = f"nothing was changed; {considered - len(done.left)} of {considered} would be adopted"
    elif not considered:
        message = "no step edits the package"
    elif open_ones:
        message = f"{considered} would be adopted"
    elif skipped:
        message = f"{considered} would be adopted, {skipped} left out"
    else:
        return "all would be adopted"
    if open_ones:
        return f"{message}; {open_ones} more may change the package"
    return message


def _counts(done: Imported) -> str:
    """Return the number of commits or steps with each outcome, such as ``1 new, 2 equal``."""
    from patchq.adopt.fit import TAKEN

    counts: Counter[str] = Counter()
    for item in done.items:
        if item.outcome in TAKEN:
            counts[ItemOutcome.NEW] += 1
        elif not (item.account and item.outcome == ItemOutcome.LEFT_OUT):
            counts[item.outcome] += 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _worded(error: NotTaken, name: str) -> tuple[str, str]:
    """Return the message and hint for steps of a script that aren't adopted."""
    statuses = (StepStatus.REFUSED, StepStatus.NOT_UNDERSTOOD)
    listed = [account for account in error.accounts if account.status in statuses]
    if not listed:
        return "no step edits the package; nothing was adopted", "name a command that edits it with --run"
    first, *rest = listed
    if not rest and not error.taken:
        message = f"{first.where}: `{short(first.text)}`: {sentence(first)}"
        return f"{message}; nothing was adopted", hint(first, name)
    more = ""
    if error.taken:
        more = f"; {counted(error.taken, 'other step')} would be adopted"
    message = "\n".join(lines(listed, name, *statuses))
    return f"{message}\nnothing was adopted{more}", "--partial adopts the others" if error.taken else ""
