"""Measurements: results of benchmark tools, the ledger of measurements, and the project's targets and bounds.

These formats of results are supported: the JSON of ``vllm bench serve`` and ``vllm bench throughput``, the JSON of
``llama-bench``, and tables with the columns ``test`` and ``t/s``, in Markdown (``llama-bench``) or in aligned
columns (``llama-benchy``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from patchq.errors import FormatError
from patchq.formats import jsonlines, toml
from patchq.formats.jsonlines import Problem

VERSION = 1
#: Limits of a file: bytes and readings.
MAX_FILE, MAX_READINGS = 16 << 20, 10_000
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result in a file of benchmark results.

    :ivar test: name of the test: ``tg32`` (32 tokens decoded, one request), ``pp2048`` (prefill of 2048 tokens),
        ``serve c8`` (eight requests at once).
    :ivar depth: tokens of context before the test.
    :ivar value: tokens per second.
    :ivar spread: standard deviation of ``value``; 0 if the file contains no deviation.
    :ivar place: position in the file: ``line 7``, ``[3]``.
    """

    test: str
    depth: int
    value: float
    spread: float = 0.0
    samples: int = 0
    engine: str = ""
    model: str = ""
    config: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Benchmark result together with its origin.

    :ivar stack_id: stack id of the measured build; empty if the build has no patches.
    :ivar patches: patches of the measured build, as ``upstream/name``.
    :ivar reported: source of a figure that someone outside the project measured; otherwise empty.
    :ivar file: imported file inside the project.
    :ivar sha256: hash of the imported file.
    :ivar time: time of the import, in UTC.
    """

    machine: str
    engine: str
    model: str
    test: str
    depth: int
    value: float
    spread: float
    samples: int
    config: str
    file: str
    sha256: str
    place: str
    time: str
    stack_id: str = ""
    patches: tuple[str, ...] = ()
    reported: str = ""

    def line(self) -> bytes:
        """Return this measurement as a line of the ledger."""
        return (json.dumps({"v": VERSION, **asdict(self)}, ensure_ascii=False) + "\n").encode()


# Files of other tools


def read_file(data: bytes, where: str) -> list[Reading]:
    """Return the results in a file of benchmark results.

    :raises FormatError: if the file has an unknown format, is too large, or contains an impossible
        figure.
    """
    if len(data) > MAX_FILE:
        raise FormatError(f"{where} has {len(data)} bytes; the limit is {MAX_FILE}", hint="remove all but the results")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8: {error}", hint="import the file as the tool wrote it") from None
    raw: Any = None
    if text.lstrip()[:1] in ("{", "["):
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"{where} is not valid JSON: {error}", hint="import the file as the tool wrote it"
            ) from None
    try:
        if raw is None:
            found = _tables(text)
        else:
            found = _json(raw)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FormatError(
            f"{where}: {type(error).__name__}: {error}", hint="import the file as the tool wrote it"
        ) from None
    if len(found) > MAX_READINGS:
        raise FormatError(
            f"{where} has {len(found)} results; the limit is {MAX_READINGS}", hint="import the results in several files"
        )
    if not found:
        raise FormatError(
            f"{where} has no known results",
            hint="known: vllm bench serve and throughput (JSON), llama-bench (JSON, Markdown), llama-benchy (table)",
        )
    for reading in found:
        _check(reading, where)
    return found


def _check(reading: Reading, where: str) -> None:
    numbers = (reading.value, reading.spread)
    if not all(math.isfinite(n) and 0 <= n < 1e9 for n in numbers) or reading.value <= 0:
        raise FormatError(
            f"{where}, {reading.place}: {reading.value} ± {reading.spread} is not a speed",
            hint="correct or remove that result",
        )
    if not 0 <= reading.depth < 1 << 30 or not 0 <= reading.samples < 1 << 30:
        raise FormatError(
            f"{where}, {reading.place}: impossible depth or number of samples", hint="correct or remove that result"
        )
    for text in (reading.test, reading.engine, reading.model, reading.config):
        if len(text) > _LONGEST or not text.isprintable():
            raise FormatError(
                f"{where}, {reading.place}: {text[:40]!r} is not a name", hint="correct or remove that result"
            )


def _json(raw: Any) -> list[Reading]:
    if isinstance(raw, list):
        return [_llama_bench(item, f"[{n}]") for n, item in enumerate(raw)]
    if "mean_tpot_ms" in raw or "output_throughput" in raw:
        return _serve(raw)
    if "tokens_per_second" in raw:
        value = float(raw["tokens_per_second"])
        return [
            Reading(
                test="throughput",
                depth=0,
                value=value,
                samples=int(raw.get("num_requests", 0)),
                engine="vLLM",
                place=".tokens_per_second",
            )
        ]
    return []


def _llama_bench(item: Mapping[str, Any], place: str) -> Reading:
    prompt, generated = int(item["n_prompt"]), int(item["n_gen"])
    if prompt and generated:
        test = f"pp{prompt}+tg{generated}"
    elif prompt:
        test = f"pp{prompt}"
    else:
        test = f"tg{generated}"
    model = str(item.get("model_type") or item.get("model_filename", ""))
    build = str(item.get("build_commit", ""))
    return Reading(
        test=test,
        depth=int(item.get("n_depth", 0)),
        value=float(item["avg_ts"]),
        spread=float(item.get("stddev_ts", 0)),
        samples=len(item.get("samples_ts", [])),
        engine="llama.cpp",
        model=model,
        config=f"build {build}" if build else "",
        place=place,
    )


def _serve(raw: Mapping[str, Any]) -> list[Reading]:
    """Return the throughput. If the requests ran one at a time, also return the decode speed."""
    done = int(raw["completed"])
    model, several = str(raw.get("model_id", "")), int(raw.get("max_concurrency") or 0)
    found = [
        Reading(
            test=f"serve c{several or 'all'}",
            depth=0,
            value=float(raw["output_throughput"]),
            spread=0.0,
            samples=done,
            engine="vLLM",
            model=model,
            config="",
            place=".output_throughput",
        )
    ]
    if several == 1 and done and raw.get("mean_tpot_ms"):
        mean, spread = float(raw["mean_tpot_ms"]), float(raw.get("std_tpot_ms") or 0)
        length, depth = round(int(raw["total_output_tokens"]) / done), round(int(raw["total_input_tokens"]) / done)
        # To first order, a rate has the same relative spread as the time.
        found.append(
            Reading(
                test=f"tg{length}",
                depth=depth,
                value=1000 / mean,
                spread=1000 * spread / mean**2,
                samples=done,
                engine="vLLM",
                model=model,
                config="",
                place=".mean_tpot_ms",
            )
        )
    return found


_TEST = re.compile(r"((?:pp|tg)\d+(?:\+tg\d+)?)(?: *@ *d(\d+))?")
_VALUE = re.compile(r"\**([\d,]+(?:\.\d+)?)\**(?: *(?:±|\+/-) *([\d.]+))?\**")


def _tables(text: str) -> list[Reading]:
    """Return the rows of each table that contains a ``test`` and a ``t/s`` column."""
    found: list[Reading] = []
    columns: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = _cells(line)
        lowered = [cell.lower() for cell in cells]
        if "test" in lowered and "t/s" in lowered:
            columns = lowered
        elif columns and len(cells) < 2:
            columns = []
        elif columns and not set(line.strip()) <= set("|-: "):
            row = dict(zip(columns, cells, strict=False))
            test, value = _TEST.fullmatch(row.get("test", "")), _VALUE.fullmatch(row.get("t/s", ""))
            if test and value:
                speed, spread = float(value[1].replace(",", "")), float(value[2] or 0)
                engine, model = row.get("engine", ""), row.get("model", "")
                config = row.get("config", row.get("backend", ""))
                depth = int(test[2] or 0)
                found.append(
                    Reading(
                        test=test[1],
                        depth=depth,
                        value=speed,
                        spread=spread,
                        samples=0,
                        engine=engine,
                        model=model,
                        config=config,
                        place=f"line {number}",
                    )
                )
    return found


def _cells(line: str) -> list[str]:
    if line.lstrip().startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    cells: list[str] = []
    for cell in re.split(r"\s{2,}|\t", line.strip()):
        if cell.strip():
            cells.append(cell.strip())
    return cells


# The ledger


def parse(data: bytes) -> tuple[list[Measurement], list[Problem]]:
    """Parse a ledger of measurements. Each damaged line becomes a problem. A repeated line counts once."""
    found, problems = jsonlines.read(data, _measurement)
    return list(found), list(problems)


def _measurement(raw: Any) -> Measurement:
    if not isinstance(raw, dict) or raw.pop("v", None) != VERSION:
        raise ValueError(f"is not a measurement of format {VERSION}")
    types: dict[str, Any] = {
        "depth": int,
        "samples": int,
        "value": (int, float),
        "spread": (int, float),
        "patches": list,
    }
    names = {f.name for f in fields(Measurement)}
    if set(raw) - names or {"test", "value", "file", "machine"} - set(raw):
        raise ValueError("has missing or unknown fields")
    for key, value in raw.items():
        if not isinstance(value, types.get(key, str)) or isinstance(value, bool):
            raise ValueError(f"has a {key} of the wrong type")
    found = Measurement(**{**raw, "patches": tuple(str(p) for p in raw.get("patches", []))})
    check(found, "the line")
    return found


def check(found: Measurement, where: str) -> None:
    """Check that a measurement contains possible figures, and that each text is one short printable line.

    :raises FormatError: if a field is invalid.
    """
    _check(
        Reading(test=found.test, depth=found.depth, value=found.value, spread=found.spread, samples=found.samples),
        where,
    )
    texts = {}
    for f in fields(Measurement):
        if f.name != "patches":
            texts[f.name] = getattr(found, f.name)
    for name, text in [*texts.items(), *(("patches", p) for p in found.patches)]:
        if isinstance(text, str) and (len(text) > _LONGEST or not text.isprintable()):
            raise FormatError(
                f"{where}: invalid {name}: {text[:40]!r}", hint="use one line of at most 200 printable characters"
            )


def add(data: bytes, new: Iterable[Measurement]) -> bytes:
    """Return a ledger's bytes with lines for more measurements."""
    return jsonlines.add(data, (m.line() for m in new))


# Goals and limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Speed that the project aims at, in tokens per second."""

    machine: str
    test: str
    value: float
    depth: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Highest possible speed of a machine, in tokens per second, for one request.

    :ivar config: the model and precisions to which the bound applies.
    :ivar depth: tokens of context before the request.
    :ivar why: resource that limits the speed, such as memory bandwidth.
    """

    machine: str
    config: str
    value: float
    depth: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Targets and bounds of ``measurements/targets.toml``."""

    targets: tuple[Target, ...] = ()
    bounds: tuple[Bound, ...] = ()


def parse_goals(data: bytes, where: str) -> Goals:
    """Parse a TOML file with tables ``[[target]]`` and ``[[bound]]``.

    :raises FormatError: if the file is malformed.
    """
    try:
        raw = toml.loads(data)
        if unknown := raw.keys() - {"target", "bound"}:
            raise ValueError(f"unknown tables {', '.join(sorted(unknown))}")
        targets = tuple(Target(**{**table, "value": float(table["value"])}) for table in raw.get("target", []))
        bounds = tuple(Bound(**{**table, "value": float(table["value"])}) for table in raw.get("bound", []))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise FormatError(f"{where}: {error}", hint=f"edit {where}") from None
    for target in targets:
        _check_goal(target, target.test, where)
    for bound in bounds:
        _check_goal(bound, bound.config, where)
    return Goals(targets=targets, bounds=bounds)


def _check_goal(goal: Target | Bound, name: str, where: str) -> None:
    texts = (goal.machine, name, goal.why)
    if not all(isinstance(text, str) for text in texts) or not isinstance(goal.depth, int):
        raise FormatError(f"{where}: a table has a field of the wrong type", hint=f"edit {where}")
    _check(Reading(test=name, depth=goal.depth, value=goal.value, engine=goal.machine, config=goal.why), where)


def differ_in_one(measurements: Sequence[Measurement]) -> list[tuple[str, Measurement, Measurement]]:
    """Return pairs of measurements of the same test, made with stacks that differ in only one patch.

    Each item contains the patch, the measurement without the patch, and the measurement with the patch.
    """
    found = []
    own = []
    for m in measurements:
        if m.stack_id and not m.reported:
            own.append(m)
    for after in own:
        for before in own:
            same = (before.machine, before.engine, before.model, before.test, before.depth, before.config) == (
                after.machine,
                after.engine,
                after.model,
                after.test,
                after.depth,
                after.config,
            )
            more, less = set(after.patches) - set(before.patches), set(before.patches) - set(after.patches)
            if same and len(more) == 1 and not less:
                found.append((more.pop(), before, after))
    return found
