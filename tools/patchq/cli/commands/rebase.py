from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial

import click

from patchq.cli.common import emit, json_option, open_project, set_option, stopped_upstream, without_proof
from patchq.cli.terminal import echo
from patchq.formats.ledger import say_offsets
from patchq.formats.outcomes import ProofState
from patchq.names import ProofRequest, counted, sh
from patchq.project.project import Project
from patchq.rebase.state import PatchStep, RebaseState, Result, Stop, tally_result


@click.command("rebase")
@click.argument("name", required=False)
@click.option("--onto", "ref", default="", metavar="REF", help="Pinned ref, tag or release to carry to.")
@click.option(
    "--from", "from_ref", default="", metavar="REF", help="Pinned ref whose stack to carry.  [default: the nearest]"
)
@click.option("--continue", "resume", is_flag=True, help="Take the resolution from the conflict worktree and continue.")
@click.option("--skip", is_flag=True, help="Leave the stopped patch out of the new stack and continue.")
@click.option("--abort", is_flag=True, help="Abort the rebase; recorded resolutions are kept.")
@click.option(
    "--retire",
    is_flag=True,
    help="Drop each patch that upstream has, if its proof passes without it. With --continue: drop the stopped patch.",
)
@click.option("--leave-out", is_flag=True, help="Leave conflicting patches for a later rebase instead of stopping.")
@click.option(
    "--codemods", is_flag=True, help="If a patch conflicts, run the command in its Codemod: trailer, sandboxed."
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATCH",
    help="Only patch to carry, even if it was dropped; may be repeated.",
)
@click.option("--no-proof", is_flag=True, help="With --continue or --propose: don't run the patch's proof.")
@click.option(
    "--include",
    multiple=True,
    metavar="PATH",
    help="With --continue: another changed path in the worktree to include; may be repeated.",
)
@click.option(
    "--drop-upstream-line",
    "dropped",
    multiple=True,
    metavar="PATH[:LINE]",
    help="With --continue: line of upstream that the patch may remove (without LINE: all lines of the file).",
)
@click.option("--propose", "proposing", is_flag=True, help="Propose resolutions of the stopped patch.")
@click.option("--take", type=click.IntRange(1), metavar="N", help="With --propose: keep proposal N of the last run.")
@click.option("--yes", is_flag=True, help="With --propose: keep the proposal if there is only one.")
@click.option(
    "--tool", "tools", multiple=True, metavar="COMMAND", help="With --propose: command to try; may be repeated."
)
@click.option(
    "--merger",
    "mergers",
    multiple=True,
    metavar="NAME",
    help="With --propose: merge program to try, by its name in the lock.",
)
@click.option("--how", default="", metavar="TEXT", help="Note on the resolution or the skip, for the ledger.")
@click.option("--new-set", default="", metavar="SET", help="Name of the set for the new pin.  [default: SET-NAME-REF]")
@set_option
@json_option
def command(
    name: str | None,
    ref: str,
    resume: bool,
    skip: bool,
    abort: bool,
    retire: bool,
    leave_out: bool,
    codemods: bool,
    only: tuple[str, ...],
    no_proof: bool,
    include: tuple[str, ...],
    dropped: tuple[str, ...],
    proposing: bool,
    take: int | None,
    yes: bool,
    tools: tuple[str, ...],
    mergers: tuple[str, ...],
    how: str,
    new_set: str,
    set_name: str,
    as_json: bool,
    from_ref: str,
) -> None:
    """Carry a stack to another ref and pin that ref.

    Stops at each patch that conflicts, with the conflict in a separate worktree. The old ref's stack and worktree don't
    change. Exit code 3 at a stop.
    """
    from patchq.errors import UserError
    from patchq.rebase import run
    from patchq.rebase.state import under_way

    if sum((bool(ref), resume, skip, abort, proposing)) != 1:
        raise click.UsageError("give exactly one of --onto, --continue, --skip, --propose and --abort")
    if not proposing and (take or yes or tools or mergers):
        raise click.UsageError("--take, --yes, --tool and --merger are options of --propose")
    project = open_project(as_json)
    if proposing:
        from patchq.cli.proposals import Wish, propose

        options = Wish(take=take, yes=yes, tools=tools, mergers=mergers, proofs=not no_proof)
        propose(project, stopped_upstream(project, name), options, partial(show, project), as_json=as_json)
        return
    if name is None:
        if ref:
            commands = []
            for pin in project.lock.pins_of(project.choose_set(set_name)):
                commands.append(f"`patchq rebase {pin.upstream} --onto {sh(ref)}`")
            raise UserError("no upstream is named", hint=" or ".join(sorted(commands)))
        name = stopped_upstream(project, None)
    prove = partial(_prove, project)
    output = sum(len(before.steps) for before in under_way(project) if before.upstream == name)
    if ref:
        found = run.start(
            project,
            name,
            ref,
            prove=prove,
            set_name=set_name,
            new_set=new_set,
            retire=retire,
            leave_out=leave_out,
            codemods=codemods,
            only=only,
            from_ref=from_ref,
        )
    elif resume:
        from patchq.rebase import resolve  # slow to import

        wish = resolve.ResolveRequest(proofs=not no_proof, dropped=dropped)
        found = resolve.resume(project, name, prove=prove, wish=wish, include=include, retire=retire, how=how)
    else:
        if skip:
            found = run.skip(project, name, prove=prove, how=how)
        else:
            found = run.abort(project, name)
    if as_json:
        emit("rebase", asdict(found))
    else:
        show(project, found, output)
    if found.state == RebaseState.STOPPED:
        raise click.exceptions.Exit(3)


def _prove(project: Project, request: ProofRequest) -> tuple[ProofState, str]:
    from patchq.proofs.prove import prove_at  # slow to import, and most rebases run no proof

    return prove_at(project, request)


def show(project: Project, found: Result, output: int) -> None:
    """Print the result of a rebase. Skip the first ``output`` steps, which were already printed."""
    for note in found.notes:
        echo(note)
    if found.state == RebaseState.NOTHING:
        return
    head = f"{found.upstream} {found.from_ref} onto {found.onto}"
    if found.state == RebaseState.ABORTED:
        echo(f"{head}: aborted; only the recorded resolutions are kept")
        return
    for step in found.steps[output:]:
        if step.outcome != "clean" and not step.known:
            _show_step(step)
    kept = 0
    counts: Counter[str] = Counter()
    for step in found.steps:
        kept += bool(step.commit)
        counts[step.outcome if step.commit or step.outcome == "absorbed" else "left out"] += 1
    words = ", ".join(f"{n} {word}" for word, n in counts.items())
    summary = tally_result(found)
    if found.stop:
        echo(f"{head}: {kept} carried ({words or 'none yet'}), {found.left} to go")
        _show_stop(found, found.stop)
        return
    if summary.needs:
        names = ", ".join(name.partition("/")[2] for name in summary.needs)
        echo(f"{summary.message}: {names}; `patchq rebase {found.upstream} --onto {sh(found.onto)}` stops at each")
    if not kept:
        in_set = ""
        if found.set_name:
            in_set = f"; the set {found.set_name} is unchanged"
        echo(f"{head}: no patch is left ({words}): no stack, pin or set was written, only the ledger{in_set}")
        return
    echo(f"{head}: {counted(kept, 'patch')} ({words}), in the set {found.set_name}")
    _show_next(project, found.set_name)


def _show_next(project: Project, set_name: str) -> None:
    """Print the commands to run after a rebase."""
    echo(f"next: `patchq apply --set {set_name}`")
    lacking = len(without_proof(project, set_name))
    total = sum(len(stack.names) for stack in project.stacks(set_name))
    if lacking < total:
        note = f"; {lacking} of {total} patches name no proof" if lacking else ""
        echo(f"then: `patchq test --prove --set {set_name}`{note}")
    else:
        echo("`patchq test` has nothing to run yet: no patch names a proof")
    if set_name != project.lock.default_set:
        echo(f"`patchq use {set_name}` makes it the default set and removes the sets that it replaces")


def _show_step(step: PatchStep) -> None:
    files = ", ".join(f.path for f in step.offsets)
    parts = [
        f"{step.outcome} {say_offsets(step.offsets)} ({files}), checked against the {step.checked}"
        if step.offsets
        else step.outcome
    ]
    for path, n in step.files:
        if n:
            parts.append(f"{path} ({n})")
        else:
            parts.append(path)
    parts += [part for part in (step.how, step.proof and f"proof {step.proof}") if part]
    echo(f"{step.patch}: " + "; ".join(parts))


def _show_stop(found: Result, stop: Stop) -> None:
    echo(f"{stop.patch} stops: {stop.outcome}", fg="yellow", bold=True)
    for path, lines in stop.conflicts:
        at = ""
        if lines:
            at = ":" + ",".join(str(n) for n in lines)
        echo(f"  {path}{at}")
    if stop.evidence:
        echo(f"  upstream has the patch, {stop.grade or 'in part'}: {stop.evidence}")
    if stop.message:
        echo(f"  {stop.message}")
    if stop.carries or stop.stops:
        echo(f"  without this patch, {stop.carries} of the patches after it apply and {stop.stops} stop")
    if stop.outcome == "absorbed":
        echo(f"  `patchq rebase {found.upstream} --continue --retire` drops the patch, if its proof passes without it;")
        echo("  if no proof can run, add --how with the reason. `--skip` leaves the patch out instead")
        if not stop.stages:
            return
    echo(f"`patchq conflict {found.upstream}` shows the conflict report")
    echo(f"`patchq rebase {found.upstream} --propose` tries other ways to merge the patch")
    echo(f"resolve the conflict in {found.worktree}, then `patchq rebase {found.upstream} --continue`;")
    reason = "" if stop.grade else " and --how with the reason"
    echo(
        f"`--skip` leaves the patch out instead; `--continue --retire`{reason} drops it, if its proof passes without it"
    )
