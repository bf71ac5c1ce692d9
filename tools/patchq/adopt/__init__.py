"""What people have, taken over: patches of any tool, edited files, scripts, pull requests."""

__all__ = [
    "adopt",
    "diffs",
    "fit",
    "folders",
    "found",
    "gather",
    "headers",
    "hosts",
    "leftovers",
    "limits",
    "mails",
    "monkey",
    "overlay",
    "recipe",
    "releases",
    "scripts",
    "shell",
    "stgit",
]
