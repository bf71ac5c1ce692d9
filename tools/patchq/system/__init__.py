"""Processes and files: subprocesses, file writes that are safe against kills, and locks."""

__all__ = ["allowance", "fsio", "leftovers", "paths", "progress", "project_files", "runner", "sandbox"]
