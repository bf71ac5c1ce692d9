"""All shapes on all layouts: ``python tests/replaying/long_form.py [NAME]...``. Prints what no message names."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tools")]

from patchq.system import sandbox  # noqa: E402
from replaying.comparing import compare  # noqa: E402
from replaying.packages import layouts  # noqa: E402
from replaying.shapes import SHAPES  # noqa: E402


def main(names: list[str]) -> int:
    # Commands of users give way to all else. Here they are what is measured.
    sandbox._SETUP = sandbox._SETUP.replace("nice -n 19 ", "")
    taken = named = unseen = blamed = 0
    chosen = {name: shape for name, shape in SHAPES.items() if not names or name in names}
    part, parts = map(int, os.environ.get("PART", "0/1").split("/"))
    chosen = dict(list(chosen.items())[part::parts])
    for name, shape in chosen.items():
        for layout in layouts():
            with tempfile.TemporaryDirectory() as folder:
                result = compare(shape, layout, Path(folder))
            print(f"{name} ({layout.name}): {result.taken} taken, {result.named} named", flush=True)
            taken += result.taken
            named += result.named
            blamed += len(result.blamed)
            for path, difference in result.unseen.items():
                unseen += 1
                print(f"UNSEEN {name} ({layout.name}): {path}: {difference}", flush=True)
            for account in result.blamed:
                print(
                    f"named, changes nothing: {name} ({layout.name}): {account.where} {account.reason} {account.message}",
                    flush=True,
                )
            if names:
                for account in result.accounts:
                    print(
                        f"  {layout.name} {account.where} {account.status.value} {account.reason} {account.text!r} {account.words} {account.paths} {account.message}"
                    )
    shapes = len(chosen) * len(layouts())
    print(f"{shapes} cases: {taken} steps taken, {named} named, {blamed} of them change nothing, {unseen} unseen")
    return min(unseen, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
