"""Patches to trees and back: apply, export, edit, check, and what a stack says of itself."""

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
