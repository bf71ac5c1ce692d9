from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import echo
from patchq.project.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from patchq.contribute.follow import Followed
    from patchq.errors import PatchqError
    from patchq.proofs.judge import Verdict
    from patchq.sources.forge import Call


@click.command("follow")
@click.argument("names", nargs=-1)
@click.option("--onto", default="", metavar="REF", help="Release to carry to.  [default: the newest release]")
@click.option(
    "--repository",
    envvar="GITHUB_REPOSITORY",
    default="",
    metavar="OWNER/NAME",
    help="GitHub repository of this project.",
)
@click.option(
    "--api", envvar="GITHUB_API_URL", default="", metavar="URL", help="URL of the git host's API.  [default: GitHub's]"
)
@click.option("--remote", default="origin", metavar="REMOTE", help="Remote to push the branch to.  [default: origin]")
@click.option("--base", default="", metavar="BRANCH", help="Branch to merge into.  [default: the current branch]")
@click.option("--no-proof", is_flag=True, help="Don't run proofs; the pull request mentions this.")
@click.option(
    "--dry-run",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the branch and the pull request to this folder; send nothing.",
)
@click.option(
    "--send",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Send the branch and the pull request from this folder, which --dry-run wrote; run nothing.",
)
@set_option
@json_option
def command(
    names: tuple[str, ...],
    onto: str,
    repository: str,
    api: str,
    remote: str,
    base: str,
    no_proof: bool,
    dry_run: Path | None,
    send: Path | None,
    set_name: str,
    as_json: bool,
) -> None:
    """Open a pull request that carries a stack to a new release.

    Keeps one pull request for each release in the project's own repository. Its branch contains the patches that apply,
    and its text lists the outcome of each patch. A later run edits the same pull request. A closed pull request is not
    opened again. The environment variable GITHUB_TOKEN must contain the token. Without NAMES, carries each stack of the
    set.

    Can run in two steps: `--dry-run DIR` needs no token with write access; then `--send DIR` runs neither proofs nor
    upstream's code.
    """
    from patchq.contribute import follow as core
    from patchq.errors import PatchqError
    from patchq.proofs.prove import prove_at
    from patchq.sources.forge import API, Forge

    _check_options(repository, dry_run, send)
    project = open_project(as_json)
    chosen = names or tuple(s.pin.upstream for s in project.stacks(project.choose_set(set_name)) if s.names)
    if onto and len(chosen) != 1:
        raise click.UsageError(f"--onto needs exactly one upstream: name one of {', '.join(chosen)}")
    found, trouble = [], []
    token = os.environ.get("GITHUB_TOKEN", "")
    for name in chosen:
        forge = Forge(
            repository=repository or "owner/project", api=api or API, token=token, dry_run=dry_run is not None
        )
        try:
            target = core.FollowTarget(forge, remote, base)
            if not send:
                one = core.follow(
                    project,
                    name,
                    target,
                    prove=partial(prove_at, project),
                    verdicts=partial(_verdicts, project, no_proof),
                    onto=onto,
                    set_name=set_name,
                    save=dry_run / name if dry_run else None,
                )
            elif (send / name / core.PREPARED).exists():
                one = core.send(project, send / name, target, set_name=set_name)
            else:
                continue
        except PatchqError as error:  # other upstreams may still have a release
            trouble.append(error)
            continue
        if dry_run:
            _write(dry_run / name, one, forge.calls)
        found.append(one)
        if not as_json:
            _show(one)
    if as_json:
        emit("follow", {"followed": as_dicts(found), "problems": [t.message for t in trouble]})
        if trouble:
            raise click.exceptions.Exit(trouble[0].exit_code)
    elif trouble:
        _raise_first(trouble)


def _check_options(repository: str, dry_run: Path | None, send: Path | None) -> None:
    if dry_run and send:
        raise click.UsageError("--dry-run and --send exclude each other")
    if not repository and not dry_run:
        raise click.UsageError(
            "name this project's GitHub repository with --repository or GITHUB_REPOSITORY, as owner/name"
        )


def _raise_first(trouble: Sequence[PatchqError]) -> None:
    """Raise the first error, after printing all other errors."""
    for other in trouble[1:]:
        echo(f"{other.message}\n{other.hint}", err=True)
    raise trouble[0]


def _verdicts(project: Project, no_proof: bool, set_name: str, patches: Sequence[str]) -> Sequence[Verdict]:
    from patchq.proofs.prove import run_proofs

    if no_proof:
        return []
    return run_proofs(project, patches, set_name=set_name, prove=True)


def _write(folder: Path, found: Followed, calls: Sequence[Call]) -> None:
    from patchq.system import fsio

    folder.mkdir(parents=True, exist_ok=True)
    fsio.write_atomic(folder / "requests.json", fsio.dump_json({"calls": as_dicts(calls)}))
    fsio.write_atomic(folder / "body.md", found.body.encode())


def _show(found: Followed) -> None:
    from patchq.contribute.follow import FollowState

    head = f"{found.upstream} {found.from_ref}"
    for note in found.notes:
        echo(note)
    words = {
        FollowState.UNKNOWN: f"{head}: no newer release is known; name a tag with --onto",
        FollowState.NOTHING: f"{head}: {found.onto} is not a newer release",
        FollowState.THERE: f"{head}: {found.onto} is already carried",
        FollowState.CLOSED: f"{head} onto {found.onto}: {found.url} was closed, and is not opened again",
        FollowState.SAME: f"{head} onto {found.onto}: {found.url} is up to date",
        FollowState.DRY_RUN: f"{found.title}\nnothing was pushed or sent",
    }
    echo(words.get(found.state, f"{found.title}\n{found.state} {found.url}"))
    if found.pushed:
        echo(f"{found.branch} is at {found.pushed[:12]}")
