"""Optional dependencies: the libraries of each extra in pyproject.toml, and the error if they are not installed.

Call :func:`need` before the first import of such a library. The import stays in the module that uses it.
"""

from __future__ import annotations

from importlib.util import find_spec

from patchq.errors import UserError

#: Import names of the libraries that each extra installs.
LIBRARIES = {
    "adopt": (
        "cmake_parser",
        "tree_sitter",
        "tree_sitter_bash",
        "tree_sitter_nix",
        "tree_sitter_ruby",
        "yaml",
    ),
    "attest": ("securesystemslib", "cryptography"),
    "cluster": ("distributed",),
    "contribute": ("identify", "markdown_it", "pre_commit", "yaml"),
    "drift": ("griffe", "tree_sitter", "tree_sitter_cuda"),
    "mutate": ("libcst", "cmake_parser", "tree_sitter", "tree_sitter_cuda", "tree_sitter_jinja"),
    "test": ("pytest",),
}


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install_command("drift")
    "python -m pip install 'patchq[drift]'"
    """
    return f"python -m pip install 'patchq[{extra}]'"


def missing(extra: str) -> list[str]:
    """Return the import names of an extra's libraries that are not installed. No library is imported."""
    found: list[str] = []
    for name in LIBRARIES[extra]:
        if find_spec(name) is None:
            found.append(name)
    return found


def need(extra: str, purpose: str) -> None:
    """Raise an error unless all libraries of an extra are installed.

    :param purpose: operation that needs the libraries, as a noun phrase for the message "PURPOSE needs …".
    :raises UserError: with the ``pip install`` command as its hint.
    """
    if lacking := missing(extra):
        verb = "are"
        if len(lacking) == 1:
            verb = "is"
        raise UserError(
            f"{purpose} needs {', '.join(lacking)}, which {verb} not installed", hint=install_command(extra)
        )
