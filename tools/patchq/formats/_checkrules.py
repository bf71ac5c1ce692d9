"""Rules of ``check`` for an upstream's patches: ``[upstreams.NAME.check]`` of the lock."""

from __future__ import annotations

from dataclasses import dataclass

#: Rules that can be off or only warn. The rule that a patch must apply is not one of them.
RULES = (
    "upstream-status",
    "topic",
    "proof",
    "needs",
    "build",
    "dco",
    "why",
    "subject",
    "unfinished",
    "self-reference",
    "debugging",
    "upstream-test",
    "requires",
    "empty",
)
#: Required ``Signed-off-by:``: each patch's author's, or that of the user who imported the patch.
SIGNERS = ("author", "importer")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Check settings of an upstream: rules that are ``off`` or only ``warn``, and who signs.

    :ivar reason: why this upstream's patches are checked differently.
    """

    off: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()
    sign_off: str = "author"
    reason: str = ""
