"""How much may be downloaded, for work that could go on for long."""

from __future__ import annotations

from patchq.errors import SourceError


class Exhausted(SourceError):
    """What is asked for is more than may still be downloaded."""


class Allowance:
    """Bytes that may come from elsewhere.

    :ivar most: all of them.
    :ivar used: those that came.

    >>> allowance = Allowance(10)
    >>> allowance.take(4)
    >>> allowance.left
    6
    >>> allowance.need(7)
    Traceback (most recent call last):
    patchq.system.allowance.Exhausted: 7 more bytes to download, and 6 of 10 are left
    """

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @property
    def left(self) -> int:
        """How many may still come."""
        return max(0, self.most - self.used)

    def need(self, size: int = 1) -> None:
        """Ask for some before they come.

        :raises Exhausted: if these are too many.
        """
        if size > self.left:
            raise Exhausted(
                f"{size} more bytes to download, and {self.left} of {self.most} are left", hint="allow more"
            )

    def take(self, size: int) -> None:
        """Count some that came.

        :raises Exhausted: if these were too many.
        """
        self.used += size
        if self.used > self.most:
            raise Exhausted(f"{self.used} bytes came, and {self.most} are the most", hint="allow more")
