"""Outcomes, grades and states that several packages and files share."""

from __future__ import annotations

from patchq.names import TextEnum


class Outcome(TextEnum):
    """Outcome of a patch on a ref; see docs/reference/formats.md.

    The first six members mean that the ref's stack contains the patch.
    """

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
    """Degree to which upstream's code already contains a patch."""

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
    """State of a patch on a ref for which the ledger contains no :class:`Outcome`."""

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
    """Severity of a finding. ``check`` fails for a problem, but not for a warning."""

    PROBLEM = "problem"
    WARNING = "warning"
