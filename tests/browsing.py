"""Pages looked at in a real Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Browser:
    """Opens pages, and keeps what they complain of."""

    def __init__(self, chromium: Any) -> None:
        self.chromium = chromium
        self.complaints: list[str] = []

    def open(self, path: Path, **options: Any) -> Any:
        page = self.chromium.new_page(**options)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or self.complaints.append(request.url))
        page.goto(path.as_uri())
        return page


@contextmanager
def chromium(home: Path) -> Iterator[Any]:
    """Chromium, as playwright has it, with a home of its own."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "apt-get install chromium, or deselect with -m 'not chromium'"
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]  # fmt: skip
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=quiet, env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": ""}
        )
        yield started
        started.close()
