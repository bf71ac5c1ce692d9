"""Measurements: files of the field's tools, the ledger, goals and bounds."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.errors import FormatError
from patchq.formats.measurements import (
    MAX_READINGS,
    Bound,
    Goals,
    Measurement,
    Target,
    add,
    differ_in_one,
    parse,
    parse_goals,
    read_file,
)

SERVE: dict[str, Any] = {
    "date": "20261121-101010", "backend": "vllm", "model_id": "openai/gpt-oss-120b", "num_prompts": 10,
    "max_concurrency": 1, "duration": 9.5, "completed": 10, "total_input_tokens": 20480, "total_output_tokens": 320,
    "request_throughput": 1.05, "output_throughput": 33.7, "mean_tpot_ms": 20.0, "std_tpot_ms": 0.5,
}  # fmt: skip


def read(data: object) -> list[tuple[str, int, float, float, str]]:
    text = data if isinstance(data, str) else json.dumps(data)
    return [(r.test, r.depth, r.value, r.spread, r.place) for r in read_file(text.encode(), "file")]


def test_one_request_at_a_time_is_a_decode_speed() -> None:
    assert read(SERVE) == [
        ("serve c1", 0, 33.7, 0.0, ".output_throughput"),
        ("tg32", 2048, 50.0, 1.25, ".mean_tpot_ms"),
    ]
    assert [r[0] for r in read({**SERVE, "max_concurrency": 8})] == ["serve c8"]


def test_throughput() -> None:
    found = read({"elapsed_time": 2.0, "num_requests": 4, "total_num_tokens": 800, "tokens_per_second": 400.0})
    assert found == [("throughput", 0, 400.0, 0.0, ".tokens_per_second")]


def test_llama_bench_json() -> None:
    item = {"build_commit": "f5acfb2ff", "model_type": "gpt-oss 120B", "n_prompt": 0, "n_gen": 32, "n_depth": 4096,
            "avg_ts": 54.81, "stddev_ts": 0.3, "samples_ts": [54.5, 55.1]}  # fmt: skip
    (found,) = read_file(json.dumps([item]).encode(), "file")
    assert (found.test, found.depth, found.value, found.samples) == ("tg32", 4096, 54.81, 2)
    assert (found.engine, found.config, found.place) == ("llama.cpp", "build f5acfb2ff", "[0]")


def test_a_file_with_too_many_results_is_refused_for_their_number() -> None:
    rows = "| tg32 | 54.81 |\n" * (MAX_READINGS + 1)
    with pytest.raises(FormatError, match="file has 10001 results; the limit is 10000") as raised:
        read("| test | t/s |\n|---|---|\n" + rows)
    assert raised.value.hint == "import the results in several files"


def test_tables() -> None:
    markdown = "words\n| model | test | t/s |\n| --- | ---: | ---: |\n| gpt | pp2048 | 2,449.83 ± 10.27 |\n| gpt | tg32 @ d4096 | **54.81** ± 0.30 |\n"
    assert read(markdown) == [
        ("pp2048", 0, 2449.83, 10.27, "line 4"),
        ("tg32", 4096, 54.81, 0.3, "line 5"),
    ]
    columns = (
        "model     test             t/s          e2e_ttft (ms)\na/b       tg32 @ d16384    29.55±0.01\nnothing else\n"
    )
    assert read(columns) == [("tg32", 16384, 29.55, 0.01, "line 2")]


@pytest.mark.parametrize(
    "data",
    [
        "",
        "just words",
        "{",
        "[" * 100_000,
        "{}",
        [{"n_prompt": 0, "n_gen": 32, "avg_ts": math.inf}],
        [{"n_prompt": 0, "n_gen": 32, "avg_ts": -1}],
        [{"n_prompt": 0, "n_gen": 32, "avg_ts": "fast"}],
        [{"n_prompt": 0, "n_gen": 32, "avg_ts": 1, "model_type": "a\u202eb"}],
        [{"n_prompt": 0, "n_gen": 32, "avg_ts": 1, "model_type": "x" * 300}],
        {**SERVE, "completed": None},
        {**SERVE, "mean_tpot_ms": 1e-300},
    ],
)
def test_what_is_no_result_is_refused_in_words(data: object) -> None:
    with pytest.raises(FormatError):
        read(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert read_file(data, "file")


def test_targets() -> None:
    (found,) = parse_goals(
        b'[[target]]\nmachine = "GB10"\ntest = "tg32"\nvalue = 52\nwhy = "because"\n', "file"
    ).targets
    assert (found.machine, found.test, found.value, found.depth) == ("GB10", "tg32", 52.0, 0)
    for bad in (
        b"x = 1",
        b"[[target]]\n",
        b'[[target]]\nmachine = 1\ntest = "t"\nvalue = 1',
        b"[[target]]\nvalue = -1",
        b"\xff",
    ):
        with pytest.raises(FormatError):
            parse_goals(bad, "file")


def measurement(**changes: Any) -> Measurement:
    base: dict[str, Any] = {
        "machine": "GB10", "engine": "vLLM", "model": "m", "test": "tg32", "depth": 0, "value": 40.0, "spread": 0.1,
        "samples": 3, "config": "", "file": "measurements/files/x", "sha256": "0" * 64, "place": "line 1",
        "time": "2026-11-21T00:00:00Z", "stack_id": "a" * 40, "patches": ("vllm/one",),
    }  # fmt: skip
    return Measurement(**{**base, **changes})


def test_the_ledger_reads_back_and_keeps_what_is_damaged() -> None:
    one, two = measurement(), measurement(value=41.5, patches=("vllm/one", "vllm/two"), stack_id="b" * 40)
    data = add(add(b"", [one]), [two, one])
    assert parse(data) == ([one, two], [])
    # Not a number, one that no speed can be, and one that no float can hold.
    for value in (b'"fast"', b"-1", b"1" + b"0" * 400):
        found, problems = parse(data.replace(b"41.5", value))
        assert found == [one]
        assert [p.number for p in problems] == [2]


def test_a_gain_is_told_only_between_stacks_that_differ_in_one_patch() -> None:
    one = measurement()
    two = measurement(value=45.0, patches=("vllm/one", "vllm/two"), stack_id="b" * 40)
    three = measurement(value=50.0, patches=("vllm/one", "vllm/two", "vllm/three"), stack_id="c" * 40)
    other_test = measurement(value=46.0, patches=("vllm/one", "vllm/two"), stack_id="b" * 40, test="tg128")
    hearsay = measurement(value=47.0, patches=("vllm/one", "vllm/two"), stack_id="", reported="somebody")
    found = [(patch, a.value, b.value) for patch, a, b in differ_in_one([one, two, three, other_test, hearsay])]
    assert found == [("vllm/two", 40.0, 45.0), ("vllm/three", 45.0, 50.0)]


def test_goals_are_the_projects_own() -> None:
    data = b"""
    [[target]]
    machine = "GB10"
    test = "tg32"
    value = 52
    [[bound]]
    machine = "GB10"
    config = "MXFP4 experts"
    value = 47.5
    depth = 4096
    """
    goals = parse_goals(data, "targets.toml")
    assert goals.targets == (Target(machine="GB10", test="tg32", value=52.0),)
    assert goals.bounds == (Bound(machine="GB10", config="MXFP4 experts", value=47.5, depth=4096),)
    assert parse_goals(b"", "targets.toml") == Goals()
    for damaged in (b"[[goal]]", b"[[bound]]\nmachine = 3\nconfig = ''\nvalue = 1", b"[[bound]]\nvalue = 1"):
        with pytest.raises(FormatError):
            parse_goals(damaged, "targets.toml")
