"""Outcomes, grades and states that several packages and files share."""

from __future__ import annotations

from patchq.names import TextEnum


class Outcome(TextEnum):
    """Outcome of a patch on a ref, cheapest first; see docs/reference/formats.md."""

    CLEAN = "clean"
    OFFSET = "offset"
    MERGED = "merged"
    #: The patch's own rules settled a conflict.
    BY_RULE = "by rule"
    #: A recorded resolution settled a conflict.
    REPLAYED = "replayed"
    #: The user settled a conflict.
    RESOLVED = "resolved"
    #: The ref already has the exact result.
    ABSORBED = "absorbed"
    OBSOLETE = "obsolete"
    CONFLICT = "conflict"
    #: The user dropped the patch without a rebase.
    WITHDRAWN = "withdrawn"


class Grade(TextEnum):
    """How much of a patch the evidence shows upstream."""

    NONE = ""
    IDENTICAL = "identical"
    CONTAINED = "contained"
    EDITED = "edited"


class DropReason(TextEnum):
    """Reason to drop a patch."""

    UPSTREAM_HAS_IT = "upstream has it"
    NOT_NEEDED = "no longer needed"
    SKIPPED = "skipped"


class CellState(TextEnum):
    """State of a patch on a ref where no attempt gave an :class:`Outcome`."""

    UNKNOWN = ""
    #: The ref's stack has the patch, which was written for this ref, not carried to it.
    WRITTEN = "carried"
    #: The ledger drops the patch.
    DROPPED = "dropped"


class ProofState(TextEnum):
    """State of a proof, of one of its runs, or of another check."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NOT_RUN = "not run"
    #: The process was killed from outside.
    NO_RESULT = "no result"
    #: The patch names no proof.
    NO_PROOF = "no proof"
    #: The proof passed with its patch and failed without it.
    PROVEN = "proven"
    NOT_PROVEN = "not proven"


class FindingLevel(TextEnum):
    """Severity of a finding. A problem makes ``check`` fail."""

    PROBLEM = "problem"
    WARNING = "warning"
