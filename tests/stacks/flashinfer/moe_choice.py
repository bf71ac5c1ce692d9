"""Which tactics FlashInfer's MoE binding sets: two of its methods, compiled alone; see moe_choice.cpp."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
METHODS = ("Profile untunedTactic(", "void setRunnerProfiles(")


def method(text: str, head: str) -> str:
    """A method's text, from its head to its closing brace; empty where there is none."""
    start = text.find(head)
    if start < 0:
        return ""
    depth = 0
    for end in range(text.index("{", text.index(")", start)), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[start : end + 1]
    raise ValueError(f"{head} has no end")


def choose(trees: Path, folder: Path, cases: Sequence[str]) -> list[str]:
    """What each case's tactics come to."""
    text = (trees / "flashinfer" / BINDING).read_text()
    source, program = folder / "choice.cpp", folder / "choice"
    methods = "\n".join(method(text, head) for head in METHODS)
    source.write_text(Path(__file__).with_suffix(".cpp").read_text().replace("  METHODS\n", methods + "\n"))
    subprocess.run(["g++", "-std=c++17", "-w", source, "-o", program], check=True)
    given = "\n".join(cases) + "\n"
    said = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == len(cases), said
    return said


CALLED = """
#include <cstdint>
#include <iostream>
enum class ActivationType { Swiglu };
template <class... Given>
void setRunnerProfiles(Given... given) {
  auto const last = [](auto const& a, auto... more) { std::cout << int64_t(a), ((std::cout << " " << int64_t(more)), ...); };
  last(given...);
  std::cout << std::endl;
}
int main() {
  int64_t const profile_ids = -7, num_rows = 3, experts_per_token = 5, num_experts_total = 128, num_experts_on_rank = 64;
  ActivationType const base_activation_type = ActivationType::Swiglu;
  (void)num_rows, (void)experts_per_token, (void)num_experts_total, (void)num_experts_on_rank, (void)base_activation_type;
  CALLS
}
"""


def told(trees: Path, folder: Path) -> list[list[str]]:
    """Rows and experts that each way of running the MoE tells the choice, of 3 tokens with 5 of 128 experts each."""
    text = (trees / "flashinfer" / BINDING).read_text()
    calls = re.findall(r"^    setRunnerProfiles\(.*?\);", text, re.S | re.M)
    source, program = folder / "called.cpp", folder / "called"
    source.write_text(CALLED.replace("CALLS", "\n".join(calls)))
    subprocess.run(["g++", "-std=c++17", "-w", source, "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[-2:] for line in said]


Case = tuple[list[str], list[str], int, int]


def some_cases(count: int) -> list[Case]:
    """Tactics of both GEMMs, the rows of all experts, and the experts."""
    random = Random(4)
    tiles = [f"128x{n}{swapped}" for n in (32, 64, 128, 256) for swapped in ("", "s")]
    others = [f"128x{n}s@{sm}" for n in (32, 64) for sm in (90, 100)]
    cases: list[Case] = []
    while len(cases) < count:
        both = [
            [random.choice(("128x128", "128x128s")), *random.choices(tiles + others, k=random.randrange(7))]
            for _ in range(2)
        ]
        experts = random.choice((1, 2, 3, 8, 128))
        each = random.choice((1, 31, 32, 33, 63, 64, 65, 127, 128, 129, random.randrange(1, 300)))
        cases.append((both[0], both[1], max(1, each * experts - random.randrange(experts)), experts))
    return cases


def smallest(tiles: list[str], rows: int, experts: int) -> str:
    """The tile of SM120, swapped and with an N below 128, that an expert's rows fit into most tightly, else the first."""
    fitting = [n for n in (32, 64) if f"128x{n}s" in tiles and rows <= n * experts]
    return f"128x{fitting[0]}s" if fitting else tiles[0]


def as_line(case: Case, dtypes: str = "") -> str:
    """A case, untuned, as the program takes it."""
    first, second, rows, experts = case
    return f"{','.join(first)} {','.join(second)} {rows} 1 {experts} -1 -1 {dtypes}"


#: Tactics of both GEMMs, as the program takes them.
FIRST, SECOND = "128x128,128x128s,128x32,128x32s,128x64,128x64s", "128x128,128x64s,128x32s,128x128s"
#: Rows, choices a row, experts; and the smallest tiles that the rows of an expert fit into.
SMALLEST = [
    (1, 4, 128, "128x32s 128x32s"),  # an expert has a row
    (8, 4, 1, "128x32s 128x32s"),  # 32 fit
    (33, 1, 1, "128x64s 128x64s"),
    (64, 4, 4, "128x64s 128x64s"),
    (65, 1, 1, "128x128 128x128"),
    (2048, 4, 128, "128x64s 128x64s"),
    (4096, 4, 128, "128x128 128x128"),
    (33, 4, 4, "128x64s 128x64s"),  # rounded up
]
