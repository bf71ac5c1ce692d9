"""Operations on stacks: apply, export, edit, check, and report their state."""

__all__ = [
    "applied",
    "apply",
    "check",
    "deps",
    "edit",
    "engine",
    "export",
    "fix",
    "rangediff",
    "reconcile",
    "refit",
    "siblings",
    "views",
]
