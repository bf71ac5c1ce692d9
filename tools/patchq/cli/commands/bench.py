from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from patchq.cli.common import emit, json_option, open_project
from patchq.cli.terminal import echo


@click.group("bench")
def command() -> None:
    """Measurements, each tied to the build that it was measured on."""


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--machine", required=True, metavar="NAME", help="What it ran on: GB10, for one.")
@click.option("--python", default="", metavar="PATH", help="The interpreter of the environment that was measured.")
@click.option("--stack", "expected", default="", metavar="ID", help="The stack id that it must be, or its beginning.")
@click.option("--reported", default="", metavar="WHO", help="Not measured by you: who says so.")
@click.option("--engine", default="", metavar="NAME", help="The engine, where the file doesn't say it.")
@click.option("--config", default="", metavar="TEXT", help="What was switched on, where the file doesn't say it.")
@json_option
def import_(
    files: tuple[Path, ...], machine: str, python: str, expected: str, reported: str, engine: str, config: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Take results into the ledger.

    JSON of vllm bench serve and throughput, llama-bench's JSON and Markdown, llama-benchy's tables. Refused where
    the environment is not the patched build.
    """
    from patchq.report.bench import import_files

    project = open_project(as_json)
    found = import_files(
        project, files, machine=machine, python=python, expected=expected, reported=reported, engine=engine,
        config=config,
    )  # fmt: skip
    if as_json:
        emit("bench-import", {"measurements": [asdict(m) for m in found]})
        return
    for m in found:
        echo(f"{m.test}{f' @ d{m.depth}' if m.depth else ''}: {m.value:g} t/s, {m.file} {m.place}")
    echo(f"{len(found)} measurements" + (f" of stack {found[0].stack_id[:8]}" if found and python else ""))


@command.command("show")
@click.option("--machine", default="", metavar="NAME", help="Of this machine alone.")
@click.option("--test", default="", metavar="TEST", help="Of this test alone: tg32.")
@json_option
def show(machine: str, test: str, as_json: bool) -> None:
    """What was measured and reported, beside what memory bandwidth allows."""
    from patchq.formats.measurements import BANDWIDTH, CONFIGS, GPT_OSS_120B, bound, differ_in_one
    from patchq.report.bench import read_measurements, read_targets

    project = open_project(as_json)
    measurements, problems = read_measurements(project)
    chosen = [m for m in measurements if machine in ("", m.machine) and test in ("", m.test)]
    bounds = {
        name: {
            config: {depth: bound(GPT_OSS_120B, bits, speed, depth) for depth in (0, 4096, 32768)}
            for config, bits in CONFIGS.items()
        }
        for name, speed in BANDWIDTH.items()
        if machine in ("", name)
    }
    gains = differ_in_one(chosen)
    targets = [t for t in read_targets(project) if machine in ("", t.machine) and test in ("", t.test)]
    if as_json:
        pairs = [{"patch": patch, "without": asdict(a), "with": asdict(b)} for patch, a, b in gains]
        emit("bench", {"measurements": [asdict(m) for m in chosen], "bounds": bounds, "gains": pairs,
                       "targets": [asdict(t) for t in targets],
                       "problems": [asdict(p) for p in problems]})  # fmt: skip
        return
    for key in sorted({(m.machine, m.test, m.depth) for m in chosen}):
        echo(f"{key[0]} {key[1]}" + (f" @ d{key[2]}" if key[2] else ""), bold=True)
        for t in (t for t in targets if (t.machine, t.test, t.depth) == key):
            echo(f"  {t.value:>9.2f}  to reach ({t.why})")
        for m in sorted((m for m in chosen if (m.machine, m.test, m.depth) == key), key=lambda m: -m.value):
            spread = f" ± {m.spread:g}" if m.spread else ""
            origin = f"reported: {m.reported}" if m.reported else f"stack {m.stack_id[:8]}"
            echo(f"  {m.value:>9.2f}{spread}  {' '.join(filter(None, (m.engine, m.config)))} ({origin})")
    for name, configs in bounds.items():
        echo(f"{name}, {GPT_OSS_120B.name}: what {BANDWIDTH[name] / 1e9:g} GB/s allow, one request", bold=True)
        for config, depths in configs.items():
            echo(f"  {config}: " + ", ".join(f"{v:.1f} t/s at {d}" for d, v in depths.items()))
    for patch, before, after in gains:
        echo(f"{patch}: {after.test} {before.value:g} -> {after.value:g} t/s")
    for problem in problems:
        echo(f"measurements/ledger.jsonl:{problem.number}: {problem.said}", fg="red", err=True)
