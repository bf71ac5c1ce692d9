"""The report as a page, looked at in a real Chromium, from hostile projects and large ones too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from browsing import Browser
from kit import Patchq
from patchq.report.ahead import ReportCell
from patchq.report.evidence import Evidence, Matrix, gather
from patchq.report.page import html, markdown
from patchq.stacks.views import PatchInfo

pytestmark = pytest.mark.chromium
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>\"'</script></title>{{ 7*7 }}|[a](javascript:1)@all"


@pytest.fixture
def page_of(stack: Patchq) -> Path:
    """The page of a small project with a ledger, results and a measurement."""
    attempt = {"v": 1, "patch": "first", "patch_id": "0" * 40, "from_ref": "v1", "onto": "v1", "outcome": "resolved",
               "tool": "t", "time": "2026-11-21T00:00:00Z", "how": "by hand", "files": [{"path": "a.txt", "hunks": 2}]}  # fmt: skip
    (stack.root / "patches" / "up" / "ledger.jsonl").write_text(json.dumps(attempt) + "\n")
    table = stack.root / "t.md"
    table.write_text("| engine | test | t/s |\n|---|---|---|\n| vLLM | tg32 | 40.5 ± 1.5 |\n")
    stack.ok("bench", "import", str(table), "--machine", "GB10", "--reported", "somebody")
    bound = '[[bound]]\nmachine = "GB10"\nconfig = "MXFP4 experts"\nvalue = 54.6\n'
    goal = '[[target]]\nmachine = "GB10"\ntest = "tg32"\nvalue = 50\nwhy = "for the test"\n'
    (stack.root / "measurements" / "targets.toml").write_text(goal + bound)
    target = stack.root / "out" / "report.html"
    stack.ok("report", "--html", str(target))
    return target


def close(page: Any) -> None:
    """Close the dialog, and wait for the cell to have the focus again."""
    page.keyboard.press("Escape")
    for _ in range(200):
        if page.evaluate("document.activeElement.tagName === 'TD' && !document.querySelector('dialog[open]')"):
            return
        page.wait_for_timeout(50)
    raise AssertionError("the focus did not go back to the cell")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 768, 390])
def test_no_complaint_no_fault_and_links_resolve(page_of: Path, browser: Browser, scheme: str, width: int) -> None:
    from axe_core_python.sync_playwright import Axe

    page = browser.open(page_of, color_scheme=scheme, viewport={"width": width, "height": 900})
    assert browser.complaints == []
    assert [f"{v['impact']}: {v['id']}: {v['nodes'][0]['html']}" for v in Axe().run(page)["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    links = page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href'))")
    assert len(links) > 10
    for link in links:
        if link.startswith("#"):
            assert page.query_selector(link), link
        elif not link.startswith("http"):
            assert (page_of.parent / unquote(link)).exists(), link
    assert len(page.screenshot()) > 10_000
    assert page_of.stat().st_size < 1_000_000


def drawn(page: Any) -> list[str]:
    """The sections of which nothing is drawn until a person scrolls there."""
    return list(
        page.evaluate("""[...document.querySelectorAll('main *')].filter(e =>
        !e.checkVisibility({contentVisibilityAuto: true}) && e.checkVisibility()).map(e => e.tagName)""")
    )


def test_nothing_is_blank_that_is_printed_or_captured_whole(page_of: Path, browser: Browser) -> None:
    page = browser.open(page_of, viewport={"width": 800, "height": 300})
    assert drawn(page) == []
    page.emulate_media(media="print", color_scheme="dark")
    assert drawn(page) == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light == "rgb(255, 255, 255)", "paper is white, whatever the screen was"
    hidden = page.eval_on_selector_all(
        ".scroll", "all => all.filter(e => getComputedStyle(e).overflowX !== 'visible').length"
    )
    assert hidden == 0, "paper can't be scrolled"


def test_a_phone_shows_cards_that_name_their_values(page_of: Path, browser: Browser) -> None:
    page = browser.open(page_of, viewport={"width": 390, "height": 844})
    card = page.locator("table.stack tbody tr").first
    tops = card.locator("td").evaluate_all("all => all.map(td => td.getBoundingClientRect().top)")
    assert tops == sorted(set(tops)), "one value below the other"
    said = card.locator("td[data-l=upstream]").evaluate("td => getComputedStyle(td, '::before').content")
    assert said == '"upstream"'
    assert card.get_attribute("role") == "row"
    assert card.locator("th").get_attribute("role") == "rowheader"
    row = page.locator("table.m tbody tr").first
    assert row.locator("th").bounding_box()["y"] < row.locator("td").first.bounding_box()["y"]


def test_columns_have_totals_and_names_link(page_of: Path, browser: Browser) -> None:
    page = browser.open(page_of)
    totals = page.eval_on_selector_all("table.m tfoot tr", "all => all.map(tr => tr.innerText.split(/\\s*\\t\\s*/))")
    assert totals == [["apply, of 3", "3"], ["need review, of 3", "0"]]
    target = page.locator("table.m tbody th a").first.get_attribute("href")
    assert page.locator(target).get_attribute("data-p") == "up/first"


def test_stops_only_leaves_what_stops(page_of: Path, stack: Patchq, browser: Browser) -> None:
    ledger = stack.root / "patches" / "up" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"resolved"', '"conflict"'))
    stack.ok("report", "--html", str(page_of))
    page = browser.open(page_of)
    page.check("#stops")
    for table in ("table.m", "table.stack"):
        shown = page.eval_on_selector_all(f"{table} tbody tr:not([hidden])", "all => all.map(tr => tr.dataset.p)")
        assert shown == ["up/first"]
    assert page.inner_text("#sifted") == "1 of 3 patches"
    page.uncheck("#stops")
    assert page.locator("table.m tbody tr:visible").count() == 3


def test_the_proofs_strength_is_told(page_of: Path, stack: Patchq, browser: Browser) -> None:
    page = browser.open(page_of)
    assert "strength" not in page.inner_text("#stacks"), "no column for what nobody asked"
    kept = stack.root / ".patchq" / "strength" / "up@first.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"version": 1, "killed": 9, "survived": 3, "not_tried": 2, "score": 0.75}))
    stack.ok("report", "--html", str(page_of))
    cells = browser.open(page_of).locator("td[data-l=strength]").all_inner_texts()
    assert [" ".join(cell.split()) for cell in cells] == ["75 % 9 of 12, 2 not tried", "not tried", "not tried"]


def test_dependencies_are_listed(page_of: Path, stack: Patchq, browser: Browser, tmp_path: Path) -> None:
    evidence = gather(stack.project, [])
    a, b, c = evidence.stacks[0].patches
    patches = (a, replace(b, needs=(a.name,)), replace(c, needs=(a.name, b.name)))
    target = tmp_path / "dependencies.html"
    found = replace(evidence, stacks=(replace(evidence.stacks[0], patches=patches),))
    target.write_text(html(found, stack.root, tmp_path))
    rows = browser.open(target).locator("#deps tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [
        ["up/second", "up/first", "–"],
        ["up/third", "up/first,", "up/second", "–"],
    ]


def test_every_cell_opens_its_evidence_by_keyboard(page_of: Path, browser: Browser) -> None:
    page = browser.open(page_of)
    page.focus("table.m td[tabindex='0']")
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    assert dialog.locator("#cell-name").inner_text() == "up/first on v1"
    assert dialog.locator("#cell-said").inner_text() == "from v1; a.txt (2 hunks); by hand"
    assert dialog.locator("#cell-file").get_attribute("href") == "../patches/up/ledger.jsonl"
    close(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert dialog.locator("#cell-name").inner_text() == "up/second on v1"
    assert dialog.locator("#cell-file").get_attribute("href") == "../patches/up/v1/second.patch"
    close(page)
    page.fill("#filter", "third")
    assert page.locator("table.m tbody tr:visible").count() == 1


def test_a_key_pressed_as_the_dialog_closes_is_not_undone(page_of: Path, browser: Browser) -> None:
    """A dialog tells that it is closed only later: the focus that a key has moved meanwhile stays where it is."""
    page = browser.open(page_of)
    page.focus("table.m td[tabindex='0']")
    page.keyboard.press("Enter")
    focused = page.evaluate("""async () => {
        const box = document.querySelector('dialog[open]');
        const told = new Promise(done => box.addEventListener('close', () => setTimeout(done)));
        box.close();
        const down = new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true});
        document.activeElement.dispatchEvent(down);
        await told;
        return document.activeElement.closest('tr').dataset.p; }""")
    assert focused == "up/second"


def test_figures_say_whose_they_are_and_where_from(page_of: Path, browser: Browser) -> None:
    page = browser.open(page_of)
    text = page.inner_text("#speed")
    assert "40.50, reported" in text
    assert "54.6 t/s, upper bound for one request with MXFP4 experts" in text
    assert "50.0 t/s, target: for the test" in text
    (link,) = page.eval_on_selector_all("#speed a", "all => all.map(a => a.getAttribute('href'))")
    assert (page_of.parent / link).read_text().startswith("| engine")
    assert "the patch names no proof" in page.inner_text("#notrun")


def hostile(evidence: Evidence) -> Evidence:
    """The same, with hostile words wherever somebody else's words can stand."""
    stacks = []
    for stack in evidence.stacks:
        infos = [
            replace(p.info, name=HOSTILE, subject=HOSTILE, topic=HOSTILE, status=f"Submitted [javascript:{HOSTILE}]",
                    proofs=(HOSTILE,), requires=(HOSTILE,), path=f"patches/{HOSTILE}", problem=HOSTILE)
            for p in stack.patches
        ]  # fmt: skip
        views = [replace(p, info=i, message=HOSTILE, proof="failed", needs=(HOSTILE,))
                 for p, i in zip(stack.patches, infos, strict=True)]  # fmt: skip
        stacks.append(replace(stack, patches=tuple(views), worktree=HOSTILE, ref=HOSTILE))
    lines = [
        replace(x, attempt=replace(x.attempt, patch=HOSTILE, how=HOSTILE, onto=HOSTILE, time=HOSTILE))
        for x in evidence.ledger
    ]
    rows = {HOSTILE: (ReportCell(outcome=HOSTILE, evidence=HOSTILE, file=f"patches/{HOSTILE}", line=3),)}
    measured = [
        replace(m, engine=HOSTILE, config=HOSTILE, machine=HOSTILE, reported=HOSTILE) for m in evidence.measurements
    ]
    return replace(
        evidence, project=HOSTILE, set_name=HOSTILE, sets={HOSTILE: {HOSTILE: HOSTILE}}, stacks=tuple(stacks),
        matrices=(Matrix(upstream=HOSTILE, refs=(HOSTILE,), rows=rows),), ledger=tuple(lines), measurements=tuple(measured),
        notes=(HOSTILE,), not_run=((HOSTILE, HOSTILE),),
    )  # fmt: skip


def test_hostile_words_stay_words(page_of: Path, stack: Patchq, browser: Browser, tmp_path: Path) -> None:
    evidence = hostile(gather(stack.project, []))
    target = tmp_path / "hostile.html"
    target.write_text(html(evidence, stack.root, tmp_path))
    page = browser.open(target)
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.eval_on_selector_all("script", "all => all.length") == 2
    assert page.eval_on_selector_all("img, iframe, [onerror], [onclick]", "all => all.length") == 0
    links = page.eval_on_selector_all("a[href]", "all => all.map(a => a.protocol)")
    assert set(links) == {"file:"}
    page.focus("table.m td[tabindex='0']")
    page.keyboard.press("Enter")
    assert page.inner_text("#cell-said") == HOSTILE
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.title().startswith(HOSTILE)
    assert browser.complaints == []
    text = markdown(evidence)
    assert "<script" not in text.replace("\\<script", "")
    assert "](javascript" not in text
    assert "@all" not in text


def large(evidence: Evidence, patches: int, refs: int) -> Evidence:
    """The same with so many patches and refs."""
    view = evidence.stacks[0].patches[0]
    words = ["clean", "offset", "merged", "conflict", "absorbed", "obsolete", ""]
    infos = [PatchInfo(upstream="up", ref="v1", name=f"patch-{n}", subject=f"Change {n}", author="A <a@b>", topic="test", status="Pending", proofs=(), needs=(), requires=(),
                       files=(("a.txt", n, 1),), path=view.info.path) for n in range(patches)]  # fmt: skip
    rows = {}
    for n, info in enumerate(infos):
        cells = []
        for r in range(refs):
            said = "a.txt (2 hunks); upstream has it in b.txt" if r % 3 else ""
            cells.append(ReportCell(outcome=words[(n * 7 + r * 3) % 7], evidence=said, file=view.info.path))
        rows[info.name] = tuple(cells)
    stack = replace(evidence.stacks[0], patches=tuple(replace(view, info=i) for i in infos))
    matrix = Matrix(upstream="up", refs=tuple(f"v{n}" for n in range(refs)), rows=rows)
    return replace(evidence, stacks=(stack,), matrices=(matrix,), not_run=())


def test_a_thousand_patches_on_twenty_refs_stay_usable(
    page_of: Path, stack: Patchq, browser: Browser, tmp_path: Path
) -> None:
    target = tmp_path / "large.html"
    target.write_text(html(large(gather(stack.project, []), 1000, 20), stack.root, tmp_path))
    page = browser.open(target)
    assert page.locator("table.m tbody td").count() == 20_000
    page.focus("table.m td[tabindex='0']")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.inner_text("#cell-name") == "up/patch-2 on v1"
    close(page)
    page.fill("#filter", "patch-999")
    assert page.locator("table.m tbody tr:visible").count() == 1
    assert browser.complaints == []


def test_json_and_markdown_are_of_the_same_model(page_of: Path, stack: Patchq) -> None:
    body = json.loads(stack.ok("report", "--json"))
    assert [p["info"]["name"] for p in body["stacks"][0]["patches"]] == ["first", "second", "third"]
    assert body["matrices"][0]["rows"]["first"][0]["outcome"] == "resolved"
    assert body["proofs"] == []
    stack.ok("report", "--junit", str(stack.root / "j.xml"), "--sarif", str(stack.root / "s.sarif"))
    assert json.loads((stack.root / "s.sarif").read_text())["runs"][0]["results"] == []
    assert (stack.root / "j.xml").read_text().startswith("<?xml")
    ledger = stack.root / "patches" / "up" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"resolved"', '"conflict"'))
    stack.ok("report", "--sarif", str(stack.root / "s.sarif"))
    (note,) = json.loads((stack.root / "s.sarif").read_text())["runs"][0]["results"]
    assert (note["level"], note["message"]["text"].partition(";")[0]) == ("note", "up/first on v1: conflict")
    ledger.write_text(ledger.read_text().replace('"conflict"', '"resolved"'))
    stack.ok("report", "--markdown", str(stack.root / "summary.md"))
    assert "| up/first | no proof | Pending | v1: resolved |" in (stack.root / "summary.md").read_text()
    assert "there are no results yet" in stack.fails(1, "report")
    said = stack.ok("report", "--html", str(stack.root / "r.html"))
    assert said.startswith("no proof was run yet\nno proof: 3 of 3 patches in the set default\n")
