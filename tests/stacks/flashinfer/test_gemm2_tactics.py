"""The tactic that the autotuner chose for the second GEMM is the one that runs.

The real binding's own choice, compiled alone, with the ids of the real runner in Python: absolute ones.
"""

from __future__ import annotations

from collections.abc import Callable

#: As v0.6.1 has them: the second GEMM has each of the first's with the finalize step fused and without.
FIRST = ["128x128", "128x64", "128x128s", "128x64s"]
SECOND = ["128x128", "128x64", "128x32", "128x256", "128x128s", "128x64s", "128x32s", "128x256s"]


def test_every_id_of_the_autotuners_is_taken_as_it_is(moe_choice: Callable[..., list[str]]) -> None:
    ids = range(len(FIRST), len(FIRST) + len(SECOND))
    cases = [f"{','.join(FIRST)} {','.join(SECOND)} 4096 4 8 1 {number}" for number in ids]
    assert moe_choice(cases) == [f"128x64 {tactic}" for tactic in SECOND]


def test_minus_one_is_an_untuned_gemm(moe_choice: Callable[..., list[str]]) -> None:
    case = f"{','.join(FIRST)} {','.join(SECOND)} 4096 4 8"
    assert moe_choice([f"{case} 1 -1", f"{case} -1 -1", f"{case} -1 6"]) == [
        "128x64 128x128",
        "128x128 128x128",
        "128x128 128x32",
    ]


def test_an_id_of_the_first_gemm_or_past_the_last_is_refused(moe_choice: Callable[..., list[str]]) -> None:
    cases = [f"{','.join(FIRST)} {','.join(SECOND)} 4096 4 8 1 {number}" for number in (0, 3, 12, -2)]
    assert all("Invalid gemm2 profile id" in said for said in moe_choice(cases))
