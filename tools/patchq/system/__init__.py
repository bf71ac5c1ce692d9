"""The only doors to processes and files: commands run, files written so that a kill can't halve them, locks."""

__all__ = ["allowance", "fsio", "leftovers", "paths", "progress", "project_files", "runner", "sandbox"]
