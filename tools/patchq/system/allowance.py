"""Limit on the number of bytes that an operation may download in total."""

from __future__ import annotations

from patchq.errors import SourceError


class Exhausted(SourceError):
    """Error for a download that exceeds an :class:`Allowance`."""


class Allowance:
    """Limit on downloaded bytes.

    :ivar most: limit in bytes.
    :ivar used: number of bytes downloaded so far.

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
        """Number of bytes that may still be downloaded."""
        return max(0, self.most - self.used)

    def need(self, size: int = 1) -> None:
        """Check that ``size`` more bytes may be downloaded. Call this before a download.

        :raises Exhausted: if fewer bytes are left.
        """
        if size > self.left:
            raise Exhausted(
                f"{size} more bytes to download, and {self.left} of {self.most} are left", hint="allow more"
            )

    def take(self, size: int) -> None:
        """Add ``size`` to the number of downloaded bytes.

        :raises Exhausted: if the total exceeds the limit.
        """
        self.used += size
        if self.used > self.most:
            raise Exhausted(f"{self.used} bytes were downloaded; the limit is {self.most}", hint="allow more")
