"""Output of proof results, for `test` and `report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.cli.common import emit
from patchq.cli.terminal import echo
from patchq.names import proof_path, sh
from patchq.project.project import Project

if TYPE_CHECKING:
    from patchq.proofs.judge import Verdict

_COLOURS = {"proven": "green", "passed": "green", "not run": "yellow", "no proof": "yellow"}


def results_file(project: Project) -> Path:
    """Return the path of the file with the verdicts of the last run."""
    return project.layout.private / "results" / "last.json"


def read_results(project: Project) -> list[Verdict] | None:
    """Return the verdicts of the last run; None if no run is recorded.

    :raises StateError: if the file is damaged.
    """
    from patchq.errors import StateError
    from patchq.proofs.verdicts import parse_proofs
    from patchq.system.fsio import load_state, read_or_none

    path = results_file(project)
    data = read_or_none(path)
    if data is None:
        return None
    try:
        return parse_proofs(load_state(data, path, 1))
    except (KeyError, TypeError, ValueError):
        raise StateError(f"{path} is damaged", hint="remove the file; `patchq test --prove` writes a new one") from None


def write_reports(
    project: Project,
    verdicts: Sequence[Verdict],
    junit: Path | None,
    sarif: Path | None,
    set_name: str,
    stops: Sequence[tuple[str, str, str, str]] = (),
) -> None:
    """Write the requested report files.

    :param stops: see :func:`patchq.proofs.verdicts.sarif_bytes`.
    """
    from patchq.proofs import verdicts as report
    from patchq.system.fsio import write_output

    if junit:
        write_output(junit.resolve(), report.junit(verdicts))
    if sarif:
        stacks = project.stacks(project.choose_set(set_name))
        paths = {}
        for s in stacks:
            for n in s.names:
                paths[f"{s.pin.upstream}/{n}"] = s.relative(project.layout, n)
        write_output(sarif.resolve(), report.sarif_bytes(verdicts, paths, stops))


def show_verdicts(verdicts: Sequence[Verdict], as_json: bool, schema: str) -> None:
    """Print verdicts as JSON, or as lines with the command to run a proof again."""
    from patchq.formats.outcomes import ProofState
    from patchq.proofs import verdicts as report

    if as_json:
        emit(schema, report.proofs_json(verdicts))
        return
    for v in verdicts:
        echo(f"{v.state:<10} ", fg=_COLOURS.get(v.state, "red"), nl=False)
        echo(f"{v.proof.title}: {v.message}")
        if not v.proof.files:
            test = proof_path(v.proof.name)
            echo(f"           write {test}, then `patchq reword {sh(v.proof.name)} --trailer {sh(f'Proof: {test}')}`")
        elif not v.ok:
            echo(f"           {'on a machine that has it' if v.state == ProofState.NOT_RUN else 'again'}: {v.command}")
    echo(", ".join(f"{n} {state}" for state, n in report.counts(verdicts).items()) or "no patches")
