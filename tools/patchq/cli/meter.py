"""Progress of long operations on one line of standard error: count, speed and remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from patchq.system.progress import BYTES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

#: Seconds until the first line appears, and between updates.
PATIENCE, PAUSE = 1.0, 0.1


class Meter:
    """Progress line that is overwritten in place. The line is cleared before other output and at the end.

    The library rich renders the line. Its own live display isn't used, because it starts a thread, which isn't safe
    when patchq forks. The live display also hides the cursor, which would stay hidden if patchq were killed.

    :param write: function that writes to standard error.
    :param line: function that renders an object to one terminal line and returns its width.
    :param shown: function that escapes untrusted text.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        line: Callable[[RenderableType], tuple[str, int]],
        shown: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._line, self._shown, self._clock = write, line, shown, clock
        self._what = ("", "")
        self._begun = self._last = self._now = 0.0
        self._first = self._done = self._width = 0
        self._task: tuple[Progress, TaskID] | None = None
        self._lock = threading.RLock()

    def __call__(self, what: str, done: int, total: int, unit: str = BYTES, /) -> None:
        """Show progress; see :class:`patchq.system.progress.Progress`."""
        with self._lock:
            now = self._clock()
            if (what, unit) != self._what or done < self._done:
                self.clear()
                self._what, self._begun, self._first, self._last, self._task = (what, unit), now, done, 0.0, None
            self._done = done
            if total and done >= total:
                self.clear()
                self._what = ("", "")
            elif now - self._begun >= PATIENCE and now - self._last >= PAUSE:
                self._last = self._now = now
                self._show(done, total)

    def clear(self) -> None:
        """Clear the progress line before other output. The next update prints the line again."""
        with self._lock:
            if self._width:
                self._write(f"\r{' ' * self._width}\r")
                self._width = 0

    def _show(self, done: int, total: int) -> None:
        progress, task = self._task = self._task or self._started(total)
        progress.update(task, completed=done, total=total or None)
        speed = progress.tasks[0].speed or 0.0
        unit = self._what[1]
        if speed >= 1:
            rate = f"{speed:.1f}"
        else:
            rate = f"{60 * speed:.1f}/min"
        progress.update(task, rate=f"{rate.removesuffix('/min')} {unit}/{'min' if '/min' in rate else 's'}")
        line, self._width = self._line(progress.make_tasks_table(progress.tasks))
        self._write(f"\r{line}")

    def _started(self, total: int) -> tuple[Progress, TaskID]:
        """Return rich's progress and task, with the start of the operation as their start time."""
        from rich import progress
        from rich.table import Column

        what, unit = self._what
        name = progress.TextColumn(
            "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        )
        much: list[progress.ProgressColumn]
        if unit == BYTES:
            much = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        else:
            much = [progress.MofNCompleteColumn(), progress.TextColumn("{task.fields[rate]}", markup=False)]
        made = progress.Progress(
            name,
            progress.BarColumn(12),
            *much,
            progress.TimeRemainingColumn(),
            expand=True,
            get_time=lambda: self._now,
            speed_estimate_period=30 if unit == BYTES else 1e9,
        )
        now, self._now = self._now, self._begun
        task = made.add_task(self._shown(what), total=total or None, completed=self._first, rate="")
        made.advance(task, 0)  # starts the measurement of the speed
        self._now = now
        return made, task
