"""Processes and files: subprocesses, file writes that survive a kill, and locks."""

__all__ = ["allowance", "fsio", "leftovers", "paths", "progress", "project_files", "runner", "sandbox"]
