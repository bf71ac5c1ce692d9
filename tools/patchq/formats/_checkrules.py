"""Which rules of ``check`` hold for an upstream's patches: ``[upstreams.NAME.check]`` of the lock."""

from __future__ import annotations

from dataclasses import dataclass

#: Rules that can be switched off, or made warnings; that a patch applies is none of them.
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
#: Whose ``Signed-off-by:`` is asked for: each patch's author's, or that of whoever has adopted it.
SIGNERS = ("author", "importer")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """What is asked of patches: rules that are ``off``, rules that only ``warn``, who signs, and why it is so."""

    off: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()
    sign_off: str = "author"
    reason: str = ""
