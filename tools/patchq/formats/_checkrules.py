"""Settings of ``check`` for an upstream's patches: the table ``[upstreams.NAME.check]`` in the lock."""

from __future__ import annotations

from patchq.records import dataclass

#: Rules that can be off or only warn. The rule that a patch must apply can't be switched off.
RULES = (
    "upstream-status",
    "topic",
    "proof",
    "proof-file",
    "needs",
    "build",
    "dco",
    "why",
    "subject",
    "unfinished",
    "self-reference",
    "debugging",
    "syntax",
    "upstream-test",
    "requires",
    "empty",
)
#: Required signer in ``Signed-off-by:``: the patch's author, the user who imported the patch, or no one.
SIGNERS = ("author", "importer", "none")
#: Rules that ``import`` switches off for patches that break them, because the patches' authors followed other rules.
ADOPTED = (
    "upstream-status",
    "topic",
    "proof",
    "proof-file",
    "needs",
    "why",
    "subject",
    "unfinished",
    "upstream-test",
    "requires",
)
#: Reason in a table that ``import`` wrote. ``import`` may add rules to such a table.
ADOPTED_REASON = "imported patches, whose authors followed other rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """Settings of ``check`` for an upstream: rules that are ``off`` or only ``warn``, and who must sign off.

    :ivar reason: why this upstream's patches are checked differently.
    :ivar imported: rules that ``import`` has switched off. ``import`` switches each rule off only once, so a rule that
        the user switches on again stays on.
    """

    off: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()
    sign_off: str = "author"
    reason: str = ""
    imported: tuple[str, ...] = ()
