"""How gpt-oss-120b is served on a GB10 is said in upstream.lock, and the same everywhere else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from patchq.formats import lock

ROOT = Path(__file__).resolve().parents[2]
LOCK = lock.parse((ROOT / "upstream.lock").read_bytes())
PAGES = ("README.md", "docs/how-to/on-a-gb10.md")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", ["gb10", "gb10-newest"])
def test_pages_serve_as_the_lock_does(page: str, name: str) -> None:
    text = (ROOT / page).read_text()
    assert f"`{name}`" in text
    lines = [line.strip("` |") for part in text.splitlines() for line in part.split(" | ") if "vllm serve " in line]
    assert shlex.join(LOCK.environments[name].serve) in lines


def test_the_variables() -> None:
    text = (ROOT / PAGES[1]).read_text()
    for name in ("gb10", "gb10-newest"):
        assert " ".join(f"{k}={v}" for k, v in LOCK.environments[name].env.items()) in text


def test_no_page_serves_otherwise() -> None:
    known = {shlex.join(LOCK.environments[name].serve) for name in ("gb10", "gb10-newest")}
    for page in PAGES:
        for part in (ROOT / page).read_text().splitlines():
            found = [line.strip("` |") for line in part.split(" | ") if "vllm serve " in line]
            assert set(found) <= known


def test_the_containers_page_has_the_environment() -> None:
    text = (ROOT / "docs/how-to/containers.md").read_text()
    example = lock.toml.loads(text[text.index("[environments.gb10]") :].partition("```")[0].encode())["environments"][
        "gb10"
    ]
    real = LOCK.environments["gb10"]
    assert (example["image"], tuple(example["requires"]), example["index"]) == (real.image, real.requires, real.index)
    assert tuple(example["serve"]) == real.serve
    assert example["env"].items() <= real.env.items()


@pytest.mark.parametrize("name", ["gb10", "gb10-newest"])
def test_a_build_on_the_machine_that_serves_is_bounded(name: str) -> None:
    """By FlashInfer itself: the module of the experts' dtypes, and as many jobs as memory allows."""
    series = (ROOT / "patches" / "flashinfer" / LOCK.sets[name]["flashinfer"] / "series").read_text().split()
    bounded = {"moe-mxfp4-build-profile.patch", "jit-jobs-by-memory.patch"} <= set(series)
    assert bounded, "without these the variables have to be in the recipe"
    assert not {"FLASHINFER_FUSED_MOE_BUILD_PROFILE", "MAX_JOBS"} & set(LOCK.environments[name].env)
