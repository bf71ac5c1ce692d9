"""Compare the import of a release archive and an overlay wheel with the fastest possible commands.

    python benchmarks/bulk.py [--runs 5]

Compares `patchq fetch`'s import with `git fast-import` of the same stream, and the overlay of vLLM's wheel with `cp` of
that wheel. Prints medians: read the ratios. The wheel and the archive must be in patchq's cache: run
`patchq apply && patchq build` first. This is not a test.
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from patchq.build import wheel  # noqa: E402
from patchq.git.repository import init_store  # noqa: E402
from patchq.project.project import Project  # noqa: E402
from patchq.sources import archive, index  # noqa: E402


def median(work: Callable[[], object], runs: int, before: Callable[[], object] = lambda: None) -> float:
    spent = []
    for _ in range(runs):
        before()
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def archive_to_commit(project: Project, folder: Path, runs: int) -> tuple[float, float]:
    pin = project.lock.pins_of(project.lock.default_set)[0]
    path = index.cached(pin.sha256)
    assert path, "not in the cache"
    stream = io.BytesIO()

    @contextmanager
    def capture(*_: object) -> Iterator[io.BytesIO]:
        yield stream

    real, archive.fast_import = archive.fast_import, capture  # type: ignore[assignment]
    try:
        archive.import_archive(init_store(folder / "x.git"), path, pin)
    except AssertionError:
        pass  # nothing was imported: only the stream is wanted
    finally:
        archive.fast_import = real
    (folder / "stream").write_bytes(stream.getvalue())
    store = folder / "s.git"

    def fresh() -> None:
        shutil.rmtree(store, ignore_errors=True)
        init_store(store)

    def floor() -> None:
        with (folder / "stream").open("rb") as file:
            argv = ["git", "-c", "core.compression=1", "fast-import", "--quiet", "--done", "--depth=1"]
            subprocess.run(argv, cwd=store, stdin=file, check=True)

    return (
        median(lambda: archive.import_archive(init_store(store), path, pin), runs, fresh),
        median(floor, runs, fresh),
    )


def overlay(project: Project, folder: Path, runs: int) -> tuple[float, float]:
    pin = project.lock.pins_of(project.lock.default_set)[0]
    found = [p for s in pin.wheels.values() if (p := index.cached(s)) and "x86_64" in p.name]
    assert found, "not in the cache"
    files = {"vllm/v1/attention/backends/flashinfer.py": b"# patched\n", "vllm/_patchq.json": b"{}\n"}
    target = folder / "out.whl"

    def gone() -> None:
        target.unlink(missing_ok=True)

    return (
        median(lambda: wheel.overlay(found[0], target, "0.13.0+x", {}, files, ()), runs, gone),
        median(lambda: subprocess.run(["cp", str(found[0]), str(target)], check=True), runs, gone),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    project = Project.find(ROOT)
    print("| what | patchq s | floor s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="patchq-bench-", dir=ROOT / ".patchq") as text:
        for name, work in (
            ("vLLM's archive to a commit / git fast-import on the same stream", archive_to_commit),
            ("overlay of vLLM's 475 MB wheel / cp", overlay),
        ):
            mine, floor = work(project, Path(text), runs)
            print(f"| {name} | {mine:.2f} | {floor:.2f} | {mine / floor:.2f} |")


if __name__ == "__main__":
    main()
