"""From the made model to the table, each engine a process, a stub in vLLM's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkpoint
import comparing
import page
import plan
import pytest
import run

HERE = Path(__file__).parent
#: On both sides of the window; a CPU is slow.
LENGTHS = (5, 40, 140)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """``serving.json`` of four cases."""
    folder = tmp_path_factory.mktemp("serving")
    checkpoint.write(folder / "model/target", checkpoint.SIZES["tiny"], seed=3)
    wrapped = {}
    for build in ("patched", "unpatched"):
        python = folder / build
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{HERE}/stub:{HERE}" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        wrapped[build] = str(python)
    names = ["marlin", "chunked prefill, prefix cache", "sinks off", "FlashInfer, taken for SM121"]
    command = [
        sys.executable, str(HERE / "run.py"), str(folder / "model"), str(folder / "out"), "--release", "0.33.0",
        "--patched", wrapped["patched"], "--unpatched", wrapped["unpatched"], "--jobs", "2",
        "--lengths", ",".join(map(str, LENGTHS)),
    ]  # fmt: skip
    for name in names:
        command += ["--only", name]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "out/serving.json").read_text())
    return found


def rows(result: dict[str, Any], case: str) -> dict[str, Any]:
    return {row["build"]: row for row in result["rows"] if row["case"] == case}


def test_an_engine_that_is_right_is_as_far_off_as_rounding(result: dict[str, Any]) -> None:
    for build, row in rows(result, "marlin").items():
        batched = row["passes"]["batched"]
        assert batched["prompts"]["positions"] == sum(LENGTHS) - len(LENGTHS), build
        assert batched["prompts"]["mean"] < result["BF16 of the reference itself"]["mean"] < 0.1
        assert batched["prompts"]["top1"] > 0.95
        assert batched["greedy"]["tokens"] == 16 * len(LENGTHS)
        assert row["passes"]["alone"]["beside batched"]["same_tokens"] == 1.0
    both = rows(result, "marlin")["patched"]["passes"]
    for label in ("beside unpatched", "beside unpatched, alone"):
        assert both[label]["same_rows"] == f"{len(LENGTHS)} of {len(LENGTHS)}"


def test_what_is_switched_off_is_held_against_a_reference_without_it(result: dict[str, Any]) -> None:
    found = rows(result, "sinks off")["patched"]
    assert found["reference otherwise"] == ["no sinks"]
    assert found["passes"]["batched"]["prompts"]["mean"] < 0.01
    assert found["passes"]["beside marlin"]["mean_prompt_logprob"] > 0.1


def test_hits_of_the_prefix_cache_are_seen(result: dict[str, Any]) -> None:
    hit = rows(result, "chunked prefill, prefix cache")["patched"]["passes"]["hit"]
    assert hit["cached tokens"] == [n // 16 * 16 for n in LENGTHS]
    assert hit["beside batched"]["same_rows"] == "3 of 3"


def test_an_engine_that_cannot_be_made_is_a_row_of_its_own(result: dict[str, Any]) -> None:
    row = rows(result, "FlashInfer, taken for SM121")["unpatched"]
    assert "error" in row
    assert "passes" not in row


def test_a_hanging_engine_is_ended_with_its_children(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '1000']).wait()"
    status = run.started([sys.executable, "-c", script], tmp_path / "log", 1.0, {})
    assert status == 124


def test_lines_that_say_what_was_chosen() -> None:
    log = """
(EngineCore pid=7) INFO 11-22 10:00:00 [cuda.py:356] Using FLASH_ATTN attention backend out of potential backends: (..)
INFO 11-22 10:00:01 [mxfp4.py:180] Using 'MARLIN' Mxfp4 MoE backend.
INFO 11-22 10:00:02 [mxfp4.py:180] Using 'MARLIN' Mxfp4 MoE backend.
INFO 11-22 10:00:02 [loader.py:1] Loading weights took 3 seconds
"""
    assert run.chosen_lines(log) == [
        "Using FLASH_ATTN attention backend out of potential backends: (..)", "Using 'MARLIN' Mxfp4 MoE backend.",
    ]  # fmt: skip


def row(prompt: list[int], tokens: list[int], logprobs: list[float], top: list[int]) -> dict[str, Any]:
    return {"prompt": prompt, "tokens": tokens, "token_logprobs": logprobs, "logprobs": [-1.0] * (len(prompt) - 1),
            "top": top}  # fmt: skip


def test_a_greedy_choice_is_judged_by_how_much_less_likely_it_is() -> None:
    truth = {(5, 6, 7, 8): {"logprobs": [-1.0, -2.0, -0.5], "top": [6, 9, 8], "top_logprobs": [-1.0, -1.75, -0.5]}}
    found = comparing.greedy([row([5, 6], [7, 8], [-2.0, -0.5], [6])], truth)
    assert found == {"tokens": 2, "likeliest": 0.5, "worst_regret": 0.25, "mean": 0.0}


def test_two_runs_are_compared_up_to_the_first_difference() -> None:
    first, second = row([5, 6], [7, 8, 9], [-1.0, -1.0, -1.0], [6]), row([5, 6], [7, 3, 9], [-1.5, -1.0, -1.0], [6])
    found = comparing.between([first], [second])
    assert (found["same_rows"], found["worst_token_logprob"]) == ("0 of 1", 0.5)
    assert found["same_tokens"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="other prompts"):
        comparing.between([first], [row([5, 7], [7], [-1.0], [6])])


def test_every_case_has_a_name_of_its_own_and_a_case_to_stand_beside() -> None:
    for release in ("0.20.0", "0.33.0"):
        cases = plan.cases(release)
        names = [case.name for case in cases]
        assert len({run.stem(name) for name in names}) == len(names)
        assert all(case.beside in names for case in cases)


def test_no_other_engine_runs_next_to_one_that_measures_free_memory(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ntest -z "$(ls "$0".running.* 2>/dev/null)" || echo "$2" >> "$0".together\n'
        'touch "$0".running.$$\nsleep 0.2\nrm "$0".running.$$\necho "{}" > "$3"\n'
    )
    python.chmod(0o755)
    (tmp_path / "model/target").mkdir(parents=True)
    (tmp_path / "model/target/config.json").write_text('{"vocab_size": 100}')
    command = [
        sys.executable, str(HERE / "run.py"), str(tmp_path / "model"), str(tmp_path / "out"), "--release", "0.33.0",
        "--patched", str(python), "--unpatched", str(python), "--jobs", "4", "--no-reference",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    together = (tmp_path / "python.together").read_text()
    assert together
    assert "own-memory-accounting" not in together


def test_the_page_shows_the_size_of_a_kv_cache_that_vllm_chose() -> None:
    found = {"case": "own memory accounting", "build": "patched", "reference otherwise": [], "passes": {"batched": {}},
             "accounting": {"available_kv_cache_memory_bytes": 1234}}  # fmt: skip
    body = {"rows": [found], "set": "gb10", "date": "2026-01-01", "versions": {"patched": {"vllm": "0.33.0+x"}}}
    assert "| own memory accounting | KV cache 1234 bytes |" in page.table({"run": body})


def test_the_page_prefers_the_newest_result_to_a_newer_error() -> None:
    def body(date: str, **row: object) -> dict[str, object]:
        rows = [{"case": "c", "build": "patched", "reference otherwise": [], **row}]
        return {"rows": rows, "set": "gb10", "date": date, "versions": {"patched": {"vllm": "0.33.0"}}}

    older, newer = ({"passes": {"b": {"greedy": {"likeliest": figure}}}} for figure in (0.25, 0.5))
    found = {"1": body("1", **older), "2": body("2", **newer), "3": body("3", error="ended: late")}
    assert "| c | 0.500 |" in page.table(found)
    assert "| c | ended |" in page.table({"3": found["3"]})


def test_the_page_is_the_one_that_the_figures_make() -> None:
    assert page.page() == (page.EVIDENCE / "serving.md").read_text()


def test_a_reference_of_another_run_judges_what_it_saw() -> None:
    known = {(5, 6, 7, 8): {"logprobs": [-1.0, -2.0, -0.5], "top": [6, 7, 8], "top_logprobs": [-1.0, -2.0, -0.5]}}
    found = comparing.beginning(known, [5, 6, 7, 9], least=2)
    assert found["top"] == [6, 7]
    judged = comparing.greedy([row([5, 6], [7, 9], [-2.0, -0.5], [6])], {(5, 6, 7, 9): found})
    assert (judged["tokens"], judged["likeliest"]) == (1, 1.0)
    with pytest.raises(KeyError, match="begins like"):
        comparing.beginning(known, [5, 7, 7, 9], least=2)
