from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import as_dicts, emit, json_option, open_project, set_option
from patchq.cli.terminal import confirm, echo
from patchq.contribute.proposal import Proposal
from patchq.names import counted
from patchq.project.project import Project


@click.command("pr")
@click.argument("patches", nargs=-1)
@click.option("--topic", default="", metavar="TOPIC", help="Propose all patches of this topic.")
@click.option("--upstream", default="", metavar="NAME", help="Upstream of the topic's patches.")
@click.option(
    "--onto",
    default="",
    metavar="REF",
    help="Upstream's ref on which to base the branch.  [default: its default branch or newest release]",
)
@click.option("--title", default="", metavar="TEXT", help="Title of the pull request.  [default: the subject]")
@click.option("--name", default="", metavar="NAME", help="Name of the branch and its folder.")
@click.option("--no-proof", is_flag=True, help="Don't run proofs and tests; the PR report mentions this.")
@click.option(
    "--upstream-tests", is_flag=True, help="Run upstream's tests of the changed files, even if there are many."
)
@click.option(
    "--no-gates", is_flag=True, help="Don't run upstream's formatter and linters; the PR report mentions this."
)
@click.option(
    "--push",
    "remote",
    default="",
    metavar="REMOTE",
    help="Address or remote of your fork to push the branch to.",
)
@click.option("--open", "opening", is_flag=True, help="Open the pull request with gh, after asking.")
@click.option("--status", "asking", is_flag=True, help="Query gh for the state of submitted patches, and record it.")
@click.option("--url", default="", metavar="URL", help="With --status: pull request that was opened by hand.")
@set_option
@json_option
def command(
    patches: tuple[str, ...],
    topic: str,
    upstream: str,
    onto: str,
    title: str,
    name: str,
    no_proof: bool,
    no_gates: bool,
    upstream_tests: bool,
    remote: str,
    opening: bool,
    asking: bool,
    url: str,
    set_name: str,
    as_json: bool,
) -> None:
    """Prepare an upstream pull request: branch, mails and report.

    Applies the patches and their dependencies to upstream's ref, and runs the proofs and upstream's linters there.
    Nothing is sent without --push or --open. Exit code 5 if the branch is not ready to be sent.
    """
    from patchq.contribute.dossier import folder_of, read_owner, write_dossier
    from patchq.contribute.propose import propose
    from patchq.contribute.submit import open_pull_request, push, ready_to_open
    from patchq.stacks.export import slug

    project = open_project(as_json)
    if asking:
        _status(project, patches, url, set_name, as_json)
        return
    if bool(patches) == bool(topic):
        raise click.UsageError("name patches, or a topic with --topic")
    name = name or topic or slug(patches[0].rpartition("/")[2])
    made = propose(
        project,
        patches,
        topic=topic,
        upstream=upstream,
        onto=onto,
        title=title,
        name=name,
        owner=read_owner(folder_of(project, name)),
        proof=not no_proof,
        gates=not no_gates,
        every_test=upstream_tests,
        set_name=set_name,
    )
    folder = write_dossier(project, made)
    state = None
    pushed = None
    if remote:
        pushed = push(project, made, remote)
    if opening:
        argv = ready_to_open(project, made)
        echo(f"{made.title}\n  to {made.repository} from {argv[argv.index('--head') + 1]}", err=True)
        confirm("Open this pull request?")
        state = open_pull_request(project, made, argv)
    if as_json:
        from patchq.contribute.dossier import as_json as body

        emit(
            "pr",
            {
                **body(made),
                "folder": str(folder),
                "pushed": pushed and asdict(pushed),
                "opened": state and asdict(state),
            },
        )
    else:
        _show(made, folder)
        if pushed:
            echo(f"pushed {pushed.commit[:12]} as {pushed.branch} to {pushed.remote}")
        if state:
            echo(f"{state.url}\n{', '.join(state.patches)}: {state.status}")
    if made.problems:
        raise click.exceptions.Exit(5)


def _show(made: Proposal, folder: Path) -> None:
    echo(made.title, bold=True)
    commits = counted(made.branch_size, "commit")
    echo(f"{commits} from {made.from_ref} onto {made.upstream} {made.onto} ({made.why_onto})")
    for m in made.members:
        why = ", needed"
        if m.chosen:
            why = ""
        echo(f"  {m.patch}: {m.outcome}{why}{', upstream has it: left out' if m.absent else ''}")
    for message, status in made.elsewhere:
        echo(f"  requires {message}: {status}")
    for v in made.verdicts:
        echo(f"  {v.state}: {v.message}")
    for t in made.tests:
        echo(f"  {t.path}: {t.before} on the ref without patches, {t.after} on the branch")
    if made.upstreams:
        worse = sum(len(f.regressions) for f in made.upstreams)
        echo(f"  upstream's own tests: {counted(len(made.upstreams), 'file')}, {counted(worse, 'regression')}")
    passed = [g for g in made.gates if g.state == "passed"]
    echo(f"  upstream's hooks: {made.no_gates or f'{len(passed)} of {len(made.gates)} passed'}")
    for line in made.not_run:
        echo(f"  not run: {line}")
    for line in made.problems:
        echo(f"  not ready: {line}", fg="red")
    if not made.owner.complete:
        echo(f"  to do: fill in {folder / 'owner.toml'}")
    echo(f"{folder}: the mails, title.txt, body.md, dossier.md")


def _status(project: Project, patches: tuple[str, ...], url: str, set_name: str, as_json: bool) -> None:
    from patchq.contribute.submit import record, refresh, submitted
    from patchq.errors import UserError
    from patchq.project.stack import find_patch

    stacks = project.stacks(project.choose_set(set_name))
    chosen = set()
    for patch in patches:
        stack, found_name = find_patch(stacks, patch)
        chosen.add((stack.pin.upstream, found_name))
    if url:
        upstreams = {u for u, _ in chosen}
        if len(upstreams) != 1:
            raise click.UsageError(
                "--url needs the names of the patches that were submitted there, all of one upstream"
            )
        states = [record(project, upstreams.pop(), tuple(n for _, n in sorted(chosen)), url, "OPEN", "")]
    else:
        found = submitted(project)
        wanted = {}
        for place, submitted_names in found.items():
            if not chosen or any((place[0], name) in chosen for name in submitted_names):
                wanted[place] = submitted_names
        if not wanted:
            raise UserError(
                "no patch is marked as submitted",
                hint="if you opened a pull request by hand, record it with `patchq pr PATCH --status --url URL`",
            )
        states = [refresh(project, upstream, names, at) for (upstream, at), names in wanted.items()]
    if as_json:
        emit("pr-status", {"pull_requests": as_dicts(states)})
        return
    for s in states:
        written = "; unchanged"
        if s.refs:
            written = f"; recorded in the stacks of {', '.join(s.refs)}"
        echo(f"{', '.join(s.patches)}: {s.status}{written}")
