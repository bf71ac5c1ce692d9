"""Serve patched modules of an installed release from this folder.

A ``.pth`` file imports this module whenever Python starts, so that it must stay small. All other
work waits for the first import of the patched package.
"""

import sys

#: Name of the patched package. This package has the same name with a prefix.
PACKAGE = __name__.replace("_patchq_thin_", "", 1)


class PatchedFinder:
    """Find the patched modules of one package."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        """Return the spec of a patched module, or None for the other modules.

        :raises ImportError: if the installed release isn't the one that the patches are for.
        """
        if fullname != PACKAGE and not fullname.startswith(PACKAGE + "."):
            return None
        from . import _serve

        return _serve.find(fullname)


#: True if another start-up file imported the package first, so that its modules are upstream's.
LATE = PACKAGE in sys.modules
if LATE:
    for _name in list(sys.modules):
        if _name.partition(".")[0] == PACKAGE:
            # The next import asks the finder below, which refuses it.
            del sys.modules[_name]
sys.meta_path.insert(0, PatchedFinder())  # type: ignore[arg-type]
