"""Execution of proofs on the workers of a Dask scheduler. Workers are selected by their resources.

A cell is sent together with the lock, the stacks and the proofs. So a worker needs neither a clone nor a
shared folder. It needs only patchq, the modules that the proofs import, and access to the upstreams. Each
worker creates the project once, in a folder of its own, and checks the ids of the trees. If a worker dies,
Dask runs the cell again on another worker.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchq.environment.machine import this_machine
from patchq.errors import EnvironmentFault, UserError
from patchq.extras import need
from patchq.formats.outcomes import ProofState
from patchq.names import counted
from patchq.project.project import Project
from patchq.proofs.judge import CellResult
from patchq.proofs.plan import ProofCell, variant_of
from patchq.proofs.run import run_cell
from patchq.system import fsio, project_files
from patchq.system.paths import LOCK_NAME, Layout, cache_folder

#: Timeout in seconds for the connection to a scheduler.
ANSWER_S = 20.0


def on_workers(
    address: str, say: Callable[[str], None]
) -> Callable[[Project, Sequence[ProofCell]], Iterable[CellResult]]:
    """Return a function that runs cells on the workers of a scheduler.

    Pass this function to :func:`patchq.proofs.prove.run_proofs` as ``run_cells``.

    :raises UserError: if Dask isn't installed or the scheduler doesn't respond.
    """

    need("cluster", "--scheduler")

    def run(project: Project, cells: Sequence[ProofCell]) -> Iterable[CellResult]:
        if not cells:
            return
        from distributed import Client

        try:
            client = Client(address, timeout=ANSWER_S, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise UserError(f"no scheduler at {address}: {error}", hint="start a scheduler: `dask scheduler`") from None
        with client:
            have: set[str] = set()
            for info in client.scheduler_info(n_workers=-1)["workers"].values():
                have |= set(info["resources"])
            payload = pack(project)
            futures: list[Any] = []
            for cell in cells:
                lacking = [n for n in cell.proof.needs if n not in have]
                if lacking:
                    futures.append(None)
                    continue
                resources = dict.fromkeys(cell.proof.needs, 1)
                futures.append(
                    client.submit(
                        work,
                        payload,
                        cell,
                        resources=resources,
                        key=f"{cell.proof.name}-{cell.key}",
                        retries=2,
                        pure=False,
                    )
                )
            say(f"{counted(sum(f is not None for f in futures), 'cell')} sent to {address}")
            for cell, future in zip(cells, futures, strict=True):
                yield future.result() if future is not None else run_cell(project, cell)

    return run


def pack(project: Project) -> dict[str, bytes]:
    """Return the contents of the lock, the stacks and the proofs, by path."""
    root = project.layout.root
    files = [root / LOCK_NAME]
    for folder in (root / "patches", root / "tests" / "stacks"):
        files += project_files.list_files(root, folder)
    packed = {}
    for path in files:
        if "rr-cache" not in path.parts:
            packed[path.relative_to(root).as_posix()] = project_files.read(root, path) or b""
    return packed


def work(payload: dict[str, bytes], cell: ProofCell) -> CellResult:
    """Run one cell on a worker, in a project that is created from ``payload``."""
    project = unpack(payload)
    with fsio.lock(project.layout.private / "worker.lock", verb="test", wait=3600):
        variant = variant_of(project, cell)
        if dict(variant.trees) != dict(cell.variant.trees):
            message = f"the worker's trees are {dict(variant.trees)}, not {dict(cell.variant.trees)}"
            return CellResult(
                proof=cell.proof.title,
                variant=cell.variant.kind,
                state=ProofState.ERROR,
                message=message,
                machine=this_machine().facts(),
            )
        try:
            return run_cell(project, replace(cell, variant=variant))
        except EnvironmentFault as error:  # this exception can't be pickled
            message = f"on a worker: {error.message}: {error.hint}"
            return CellResult(
                proof=cell.proof.title,
                variant=cell.variant.kind,
                state=ProofState.NO_RESULT,
                message=message,
                machine=this_machine().facts(),
            )


def unpack(payload: dict[str, bytes]) -> Project:
    """Return the project that consists of a payload's files. Create its folder on the first call."""
    digest = hashlib.sha256()
    for name in sorted(payload):
        digest.update(name.encode() + b"\0" + hashlib.sha256(payload[name]).digest())
    root = cache_folder() / "workers" / digest.hexdigest()[:16]
    if not (root / LOCK_NAME).exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent) as text:
            fresh = Path(text) / "project"
            for name, data in payload.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if not root.exists():
                fresh.rename(root)
    return Project(layout=Layout(root), wait=3600)
