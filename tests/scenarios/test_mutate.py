"""`test --mutate`: mutants of a patch's own lines, and whether its proof sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import Patchq, git
from patchq.mutation import strength
from patchq.mutation._mutants import Mutant, mutants_of
from patchq.mutation.known import KnownStrength, known_strength
from patchq.mutation.strength import NOT_REACHED, MutantState, Strength, Tried, pool
from patchq.project.project import Project
from patchq.proofs.judge import CellResult

SOURCE = b'''\
def limit(size, spare=0):
    """How much there is."""
    if size > 10 and not spare:
        return size - 1
    return spare
'''
STRONG = """\
import pytest

@pytest.fixture
def limit(trees):
    space = {}
    exec((trees / "up" / "pkg" / "limit.py").read_text(), space)
    return space["limit"]

def test_limit(limit):
    assert [limit(10), limit(11), limit(12, 1), limit(3, 7)] == [0, 10, 1, 7]
"""
WEAK = STRONG.replace("[limit(10), limit(11), limit(12, 1), limit(3, 7)] == [0, 10, 1, 7]", "limit(20) == 19")


@pytest.fixture
def limited(stack: Patchq) -> Patchq:
    """A fourth patch adds a function, with a proof; a fifth one changes the file above it."""
    (stack.tree() / "pkg" / "limit.py").write_bytes(SOURCE)
    proof = stack.root / "tests" / "stacks" / "up" / "test_limit.py"
    proof.parent.mkdir(parents=True, exist_ok=True)
    proof.write_text(STRONG)
    message = "Add limit\n\nWhy.\n\nProof: tests/stacks/up/test_limit.py"
    stack.ok("new", "up", "limit", "-m", message, "--topic", "t", "-s")
    (stack.tree() / "pkg" / "limit.py").write_bytes(b"# Limits.\nOTHER = 3\n\n\n" + SOURCE)
    stack.ok("new", "up", "above", "-m", "Say what it is\n\nWhy.", "--topic", "t", "-s")
    return stack


def mutated(patchq: Patchq, *args: str) -> dict[str, dict[str, object]]:
    body = json.loads(patchq.ok("test", "--mutate", "--json", *args))
    assert body["schema"] == "patchq/test-mutate/1"
    return {p["patch"]: p for p in body["patches"]}


def survivors(strength: dict[str, object]) -> set[str]:
    return {m["after"].strip() for m in strength["mutants"] if m["state"] == "survived"}  # type: ignore[attr-defined]


def test_a_strong_proof_kills_and_a_weak_one_does_not(limited: Patchq) -> None:
    strong = mutated(limited, "limit")["up/limit"]
    assert strong["whole"]
    assert strong["score"] == 1.0, survivors(strong)
    assert strong["killed"] >= 10
    (limited.root / "tests/stacks/up/test_limit.py").write_text(WEAK)
    weak = mutated(limited, "limit")["up/limit"]
    assert {m["name"] for m in weak["mutants"]} == {m["name"] for m in strong["mutants"]}  # type: ignore[attr-defined]
    assert weak["score"] < 0.8  # type: ignore[operator]
    assert "return None" in survivors(weak)  # of the last line, which that proof never reaches
    said = limited.ok("test", "--mutate", "limit")
    assert "survived tests/stacks/up/test_limit.py" in said
    assert "+    if size > 11 and not spare:" in said


def test_only_a_patchs_own_lines_are_broken(limited: Patchq) -> None:
    lines = {m["line"] for m in mutated(limited, "limit")["up/limit"]["mutants"]}  # type: ignore[attr-defined]
    assert lines <= set(range(5, 10))
    assert not git(limited.tree(), "status", "--porcelain"), "the worktree stays as it is"


def test_what_was_found_is_known_later_and_whether_it_is_of_a_sample(limited: Patchq) -> None:
    project = Project.find(limited.root)
    assert known_strength(project, "up/limit") is None
    every = mutated(limited, "limit")["up/limit"]
    known = known_strength(project, "up/limit")
    assert known == KnownStrength(killed=every["killed"], of=every["killed"], equivalent=0, not_tried=0, sampled=False)  # type: ignore[arg-type]
    assert every["in_all"] == every["killed"]
    few = mutated(limited, "limit", "--at-most", "4")["up/limit"]
    assert few["in_all"] == every["in_all"]
    assert known_strength(project, "up/limit") == KnownStrength(killed=4, of=4, equivalent=0, not_tried=0, sampled=True)
    mutated(limited, "limit", "--seconds", "0.001", "--seed", "1")
    assert known_strength(project, "up/limit") is None, "none has an answer"


def test_a_budget_and_going_on(limited: Patchq) -> None:
    one = mutated(limited, "limit", "--at-most", "4", "--seed", "7")["up/limit"]
    again = mutated(limited, "limit", "--at-most", "4", "--seed", "7")["up/limit"]
    other = mutated(limited, "limit", "--at-most", "4", "--seed", "8")["up/limit"]
    names = [[m["name"] for m in found["mutants"]] for found in (one, again, other)]  # type: ignore[attr-defined]
    assert len(names[0]) == 4
    assert names[0] == names[1] != names[2]
    results = limited.layout.private / "results"
    before = {p.name for p in results.iterdir()}
    mutated(limited, "limit", "--at-most", "4", "--seed", "7")
    assert {p.name for p in results.iterdir()} == before, "what has an answer is not run again"
    done = mutated(limited, "limit", "--seconds", "0.001")["up/limit"]
    assert not done["whole"]
    assert done["not_tried"]
    assert "tries the rest" in limited.ok("test", "--mutate", "limit", "--seconds", "0.001")


def test_an_interrupt_ends_with_what_it_has(limited: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first mutant's result."""
    answer = strength._answer
    calls: list[Mutant] = []

    def interrupt(mutant: Mutant, result: CellResult) -> Tried:
        calls.append(mutant)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return answer(mutant, result)

    with monkeypatch.context() as patched:
        patched.setattr(strength, "_answer", interrupt)
        said = limited.fails(130, "test", "--mutate", "--seed", "3", "limit", "first")
        body = json.loads(limited.run("test", "--mutate", "--json", "limit").stdout)
    assert "up/limit: 1 of 1 killed (100 %), " in said
    assert "next: the same command with --seed 3 tries the rest" in said
    assert said.count("interrupted") == said.count("up/first: not tried: the run was interrupted before its turn")
    (one,) = body["patches"]
    assert (one["killed"], one["whole"]) == (1, False)
    known = known_strength(limited.project, "up/limit")
    assert known
    assert known.not_tried == one["not_tried"] > 0
    assert mutated(limited, "limit")["up/limit"]["whole"]


def test_an_interrupt_before_any_result_keeps_those_of_earlier_runs(
    limited: Patchq, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutated(limited, "limit", "--at-most", "2")
    before = known_strength(limited.project, "up/limit")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(strength, "run_cells_kept", interrupt)
    assert "all: no mutant has a result" in limited.fails(130, "test", "--mutate", "limit")
    assert known_strength(limited.project, "up/limit") == before


def test_no_patch_is_planned_after_the_seconds(limited: Patchq) -> None:
    mutated(limited, "limit", "--at-most", "4")
    project = Project.find(limited.root)
    for seed in range(20):
        found = mutated(limited, "--at-most", "4", "--seconds", "0.001", "--seed", str(seed))
        late = {name for name, strength in found.items() if strength["message"] == NOT_REACHED}
        assert len(late) == len(found) - 1
        if "up/limit" in late:
            assert known_strength(project, "up/limit"), "what an earlier run found stays"
            return
    pytest.fail("no seed takes another patch first")


def test_a_sample_has_a_new_seed_that_is_printed_with_the_pooled_share(limited: Patchq) -> None:
    answers = [json.loads(limited.ok("test", "--mutate", "limit", "--at-most", "2", "--json")) for _ in range(3)]
    assert len({answer["seed"] for answer in answers}) > 1
    pooled = answers[0]["pooled"]
    assert pooled["killed"] == pooled["judged"] == 2
    assert (round(pooled["low"], 3), pooled["high"]) == (0.342, 1.0)
    said = limited.ok("test", "--mutate", "limit", "--at-most", "2", "--seed", "5")
    assert said.splitlines()[-1] == "all: 2 of 2 killed (100 %; 95 % interval 34 to 100 %); --seed 5"
    assert "--seed need --mutate" in limited.fails(2, "test", "limit", "--seed", "5")


@pytest.mark.parametrize(
    ("killed", "judged", "low", "high"), [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.2775), (81, 263, 0.2553, 0.3662)]
)
def test_the_interval_is_wilsons(killed: int, judged: int, low: float, high: float) -> None:
    mutant = mutants_of("pkg/limit.py", SOURCE, {3})[0]
    tried = [Tried(mutant=mutant, state=MutantState.KILLED)] * killed + [
        Tried(mutant=mutant, state=MutantState.SURVIVED)
    ] * (judged - killed)
    pooled = pool([Strength(patch="up/p", proof=(), tried=tuple(tried))])
    assert (pooled.killed, pooled.judged) == (killed, judged)
    assert (round(pooled.low, 4), round(pooled.high, 4)) == (low, high)


def test_equivalent_ones_count_apart_with_a_reason(limited: Patchq) -> None:
    proof = limited.root / "tests/stacks/up/test_limit.py"
    proof.write_text(WEAK)
    name = next(m["name"] for m in mutated(limited, "limit")["up/limit"]["mutants"] if m["state"] == "survived")  # type: ignore[attr-defined]
    proof.write_text(WEAK + f'\nEQUIVALENT_MUTANTS = {{"{name}": "nobody asks for so little"}}\n')
    found = mutated(limited, "limit")["up/limit"]
    assert found["equivalent"] == 1
    assert next(m for m in found["mutants"] if m["name"] == name)["message"] == "nobody asks for so little"  # type: ignore[attr-defined]
    proof.write_text(WEAK + f'\nEQUIVALENT_MUTANTS = {{"{name}": ""}}\n')
    assert mutated(limited, "limit")["up/limit"]["equivalent"] == 0, "a reason is asked for"


def test_a_proof_that_fails_by_itself_is_told(limited: Patchq) -> None:
    (limited.root / "tests/stacks/up/test_limit.py").write_text("def test_it():\n    assert False\n")
    assert "the proof itself: failed" in limited.fails(5, "test", "--mutate", "limit")


def test_a_mutant_that_never_ends_is_killed(limited: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchq.mutation.strength.SPARE_SECONDS", 3.0)
    proof = limited.root / "tests/stacks/up/test_limit.py"
    proof.write_text(STRONG + "    while limit(10):\n        pass\n")
    found = mutated(limited, "limit", "--at-most", "6")["up/limit"]
    assert found["score"] == 1.0


def test_mutants_run_in_forks_that_a_proof_must_pass_in(limited: Patchq) -> None:
    """A fork is its session's leader. A proof that fails in one is run in processes of its own, and sees no more."""
    proof = limited.root / "tests/stacks/up/test_limit.py"
    fork = "os.getsid(0) == os.getpid()"
    noting = (
        "import os\n"
        + WEAK
        + f"    with open(os.environ['PATCHQ_TREES'] + '.seen', 'a') as out:\n        print({fork}, file=out)\n"
    )
    proof.write_text(noting)
    expected = survivors(mutated(limited, "limit")["up/limit"])
    assert expected
    seen = [line for path in limited.root.rglob("slot*.seen") for line in path.read_text().split()]
    assert seen.count("True") > 3
    proof.write_text("import os\n" + WEAK + f"    assert not ({fork})\n")
    assert survivors(mutated(limited, "limit")["up/limit"]) == expected


PYTHON = b'''\
@decorated
def f(a, b=None, *, key=3, **rest):
    """Docs."""
    if a < b or key in (1, 2):
        g(a, b, key=key)
        raise ValueError("talk %d" % 3)
    for x in a:
        self.y = x + 1
    logger.info("say %d", 4, extra=True)
    return "word" if a is None else h(b, *a)
'''


@pytest.mark.parametrize(
    ("operator", "after"),
    [
        ("condition negated", b"if not (a < b or key in (1, 2)):"),
        ("condition shortened", b"if a < b:"),
        ("boundary moved", b"if a <= b or key in (1, 2):"),
        ("boundary moved", b"if a < b or key not in (1, 2):"),
        ("and for or", b"if a < b and key in (1, 2):"),
        ("constant changed", b"if a < b or key in (1, 3):"),
        ("default changed", b"def f(a, b=0, *, key=3, **rest):"),
        ("constant changed", b"def f(a, b=None, *, key=4, **rest):"),
        ("arguments swapped", b"g(b, a, key=key)"),
        ("argument dropped", b"g(a, b)"),
        ("another argument in scope", b"g(b, b, key=key)"),
        ("call left out", b"        pass\n        raise"),
        ("error left out", b"key=key)\n        pass"),
        ("branch removed", b"(1, 2):\n        pass\n    for"),
        ("loop left out", b"for x in ():"),
        ("assignment left out", b"in a:\n        pass"),
        ("other arithmetic", b"self.y = x - 1"),
        ("nothing returned", b"return None\n"),
        ("constant changed", b'return "" if'),
        ("early return", b'Docs."""\n    return None\n'),
        ("decorator left out", b"def f(a"),
    ],
)  # fmt: skip
def test_python_operators(operator: str, after: bytes) -> None:
    found = [m for m in mutants_of("x.py", PYTHON, range(1, 11)) if m.operator == operator]
    assert any(after in m.content for m in found), [m.after for m in found]


def test_what_is_said_to_people_and_what_is_of_types_stays() -> None:
    found = mutants_of("x.py", PYTHON, range(1, 11))
    assert not [m for m in found if b"talk" not in m.content and m.operator == "constant changed"]
    assert not [m for m in found if m.line == 9]
    assert not mutants_of("x.py", b"x: int = y\nfrom a import b\nimport c\n'doc'\n", range(1, 5))


def test_every_python_mutant_parses_and_is_another() -> None:
    source = Path(__file__).read_bytes()
    found = mutants_of("x.py", source, range(1, 400))
    assert len(found) > 100
    assert len({m.content for m in found} | {source}) == len(found) + 1
    assert len({m.name for m in found}) == len(found)
    for mutant in found:
        compile(mutant.content, "mutant", "exec")


@pytest.mark.parametrize(
    ("path", "source", "after"),
    [
        ("k.cu", b"int f(int a) { if (a < 3 && b) g(a, 2); return h<1, 2>(a + 1); }\n",
         [b"if (!(a < 3 && b))", b"a <= 3", b"a < 4", b"a < 3 || b", b"g(2, a)", b"g(a)", b"h<2, 1>", b"h<2, 2>", b"a - 1", b"b) ; return", b"b) {} return"]),
        ("k.hpp", b"#if A > 1\nconst bool x = true;\n#endif\n", [b"#if !(A > 1)", b"A >= 1", b"x = false"]),
        ("CMakeLists.txt", b'if(A VERSION_LESS 12.8)\n  set(X "1;2" Y)\nendif()\n',
         [b"NOT (A VERSION_LESS 12.8)", b"VERSION_GREATER_EQUAL", b'set(X "2" Y)', b'set(X "1;2")', b"112.8"]),
        ("k.jinja", b"{% if a and b > 1 %}{{ x + 2 }}{% endif %}\n", [b"not (a and b > 1)", b"a or b", b"b >= 1", b"b > 2", b"x - 2", b"%}{% endif"]),
    ],
)  # fmt: skip
def test_operators_of_other_languages(path: str, source: bytes, after: list[bytes]) -> None:
    found = mutants_of(path, source, range(1, 9))
    assert not [text for text in after if not any(text in m.content for m in found)]
    assert not mutants_of("notes.txt", source, range(1, 9))
