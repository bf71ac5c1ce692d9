"""The documentation as a site: built strictly, each link resolves in it, nothing of it asks another host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from browsing import Browser
from kit import ROOT

pytest.importorskip("material", reason="needs the extra docs: the workflow `site` builds it")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "NO_MKDOCS_2_WARNING": "1"}
    # Not -q: what isn't said isn't counted, and --strict counts warnings.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_each_link_resolves_within_the_site(site: Path) -> None:
    dead, elsewhere = [], []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text()
        for tag, link in re.findall(r'<(\w+)[^>]*? (?:href|src)="?([^"\s>]+)', text):
            parts = urlsplit(unescape(link))
            if parts.scheme or parts.netloc:
                if tag != "a" and parts.scheme != "data":
                    elsewhere.append(f"{page.relative_to(site)}: {link}")
                continue
            if not parts.path or page.name == "404.html":
                continue
            target = page.parent / unquote(parts.path)
            if not (target / "index.html" if target.is_dir() else target).is_file():
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []
    assert elsewhere == [], "a page asks another host for something"


def test_readme_is_home_search_finds_and_the_report_is_live(site: Path) -> None:
    assert "maintains a fork as a pinned upstream" in (site / "index.html").read_text()
    found = {d["location"] for d in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    assert {"explanation/comparison/", "how-to/see-it-all/", "benchmarks/"} <= found
    applied = (ROOT / ".patchq" / "store.git").is_dir()  # else it would have to be downloaded first
    wanted = "What newer releases cost" if applied else "patchq apply"
    assert wanted in (site / "report" / "index.html").read_text()
    assert 'src="../report/index.html"' in (site / "this-project" / "index.html").read_text()


@pytest.mark.chromium
@pytest.mark.parametrize(
    ("scheme", "width", "names"),
    [
        ("light", 1280, ("", "tutorial/first-stack/", "evidence/serving/")),
        ("dark", 390, ("", "explanation/comparison/")),
    ],
)
def test_axe_finds_nothing_in_its_pages(
    site: Path, browser: Browser, scheme: str, width: int, names: tuple[str, ...]
) -> None:
    from axe_core_python.sync_playwright import Axe

    for name in names:
        page = browser.open(site / name / "index.html", color_scheme=scheme, viewport={"width": width, "height": 900})
        # What is moderate is the theme's script's: a landmark for each button that copies, tables that scroll.
        found = [v for v in Axe().run(page)["violations"] if v["impact"] in ("serious", "critical")]
        assert [f"{v['id']}: {v['nodes'][0]['html']}" for v in found] == [], name or "home"
        page.close()
