"""Patches to trees and back: apply, export, edit, check, and what a stack says of itself."""

__all__ = [
    "adopt",
    "applied",
    "apply",
    "check",
    "deps",
    "edit",
    "engine",
    "export",
    "mails",
    "memtree",
    "rangediff",
    "siblings",
    "views",
]
