"""Measure how fast Chromium opens a report of this project, and one of 1,000 patches on 20 refs.

    python benchmarks/report_page.py [--runs 5]

Needs Chromium and the extra `dev`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "scenarios")]

from playwright.sync_api import sync_playwright  # noqa: E402

from patchq.project.project import Project  # noqa: E402
from patchq.report.evidence import gather  # noqa: E402
from patchq.report.page import html  # noqa: E402
from test_report_page import large  # noqa: E402

OPENED = "(() => { const n = performance.getEntriesByType('navigation')[0]; return n.loadEventEnd - n.startTime; })()"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
MOVE = """(() => { const td = document.querySelector("table.m td[tabindex='0']"); td.focus();
const start = performance.now();
for (let n = 0; n < 20; n++) document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}));
document.body.offsetHeight; return (performance.now() - start) / 20; })()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    evidence = gather(Project.find(ROOT), [])
    pages = {"this project": evidence, "1,000 patches x 20 refs": large(evidence, 1000, 20)}
    with tempfile.TemporaryDirectory() as text, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, model in pages.items():
            path = Path(text) / "report.html"
            path.write_text(html(model, ROOT, Path(text)))
            seen: dict[str, list[float]] = {"opened_ms": [], "painted_ms": [], "key_ms": []}
            for _ in range(runs):
                page = browser.new_page()
                page.goto(path.as_uri())
                page.wait_for_timeout(200)
                for key, script in (("opened_ms", OPENED), ("painted_ms", PAINTED), ("key_ms", MOVE)):
                    seen[key].append(page.evaluate(script) or 0)
                page.close()
            medians = {key: round(statistics.median(values), 1) for key, values in seen.items()}
            print(json.dumps({"report": name, "bytes": path.stat().st_size, **medians}))
        browser.close()


if __name__ == "__main__":
    main()
