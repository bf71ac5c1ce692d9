"""``init``: what a new project starts with."""

from __future__ import annotations

from pathlib import Path

from patchq import __version__
from patchq.errors import UserError
from patchq.formats.lockedit import EMPTY
from patchq.project import own
from patchq.system import fsio
from patchq.system.paths import LOCK_NAME

_IGNORE = ["/.patchq/", "/dist/"]
_ATTRIBUTES = [
    "patches/**/*.patch -text -whitespace",
    "patches/*/*/series merge=union",
    "patches/*/ledger.jsonl merge=union",
    "patches/*/rr-cache/** -text -diff",
]
ATTRIBUTES_NAME = ".gitattributes"
_WORKFLOW = """\
name: patches
on:
  push:
  pull_request:
  schedule: [{cron: "17 3 * * *"}]
permissions: {contents: read}
jobs:
  patches:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.11"}
      # By commit or by hash: a bare name is whoever's takes it first on the index.
      - run: |
          case "$PATCHQ" in
            @CASE@) ;;
            *) echo "::error::set the variable PATCHQ: patchq @ git+URL@COMMIT, or patchq @ URL#sha256=HASH"; exit 1;;
          esac
          python -m pip install "$PATCHQ"
        env: {PATCHQ: "@PATCHQ@"}
      - run: patchq check
      - run: patchq apply
      # What upstream's newest would cost: an annotation on each patch that stops there. It fails nothing.
      - if: github.event_name == 'schedule'
        run: patchq forecast --newest --annotate
      - if: always()
        run: patchq report --html report/index.html --markdown "$GITHUB_STEP_SUMMARY" --look-ahead
      - if: always()
        uses: actions/upload-artifact@v4
        with: {name: report, path: report}
"""
_REBASES = """\
# On a new release of an upstream: one pull request that carries the stack onto it. It is edited in place, and never
# opened again once somebody closed it. Allow Actions to create pull requests in the repository's settings.
name: rebases
on:
  schedule: [{cron: "43 4 * * *"}]
  workflow_dispatch:
    inputs:
      name: {description: "an upstream; all by default", default: ""}
      onto: {description: "a ref; the newest release by default", default: ""}
permissions: {contents: write, pull-requests: write}
concurrency: {group: rebases, cancel-in-progress: false}
jobs:
  follow:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: ./.github/actions/follow
        with:
          name: ${{ inputs.name }}
          onto: ${{ inputs.onto }}
          patchq: "@PATCHQ@"
"""
_ACTION = """\
name: follow
description: Carries the stacks of a patchq project onto a new release, as a pull request
inputs:
  name: {description: "an upstream; all that have patches by default", default: ""}
  onto: {description: "a ref; the newest release by default", default: ""}
  options: {description: "more options of patchq follow, separated by blanks", default: ""}
  patchq: {description: "patchq @ git+URL@COMMIT, or patchq @ URL#sha256=HASH", required: true}
  token:
    description: "may write contents and pull requests; of GitHub's own no workflow is started by what it opens"
    default: ${{ github.token }}
runs:
  using: composite
  steps:
    - uses: actions/setup-python@v5
      with: {python-version: "3.11"}
    # By commit or by hash: a bare name is whoever's takes it first on the index.
    - shell: bash
      env: {PATCHQ: "${{ inputs.patchq }}"}
      run: |
        case "$PATCHQ" in
          @CASE@) ;;
          *) echo "::error::set the variable PATCHQ: patchq @ git+URL@COMMIT, or patchq @ URL#sha256=HASH"; exit 1;;
        esac
        python -m pip install "$PATCHQ"
    - shell: bash
      env:
        GITHUB_TOKEN: ${{ inputs.token }}
        NAME: ${{ inputs.name }}
        ONTO: ${{ inputs.onto }}
        OPTIONS: ${{ inputs.options }}
      run: patchq follow ${NAME:+"$NAME"} ${ONTO:+--onto "$ONTO"} $OPTIONS
"""


def _from_here(workflow: str) -> bytes:
    """A workflow, with the source of this patchq, or the repository's variable that says one."""
    return workflow.replace("@CASE@", own.CASE).replace("@PATCHQ@", own.source() or "${{ vars.PATCHQ }}").encode()


def init(folder: Path) -> list[str]:
    """Make a project in ``folder``; what is there already stays as it is. Returns what was made.

    :raises UserError: if there is a project already.
    """
    folder = folder.resolve()
    if (folder / LOCK_NAME).exists():
        raise UserError(f"{folder} is a project already", hint="`patchq status` shows it")
    made = []
    for name, data in (
        (".github/workflows/patches.yml", _from_here(_WORKFLOW)),
        (".github/workflows/rebases.yml", _from_here(_REBASES)),
        (".github/actions/follow/action.yml", _ACTION.replace("@CASE@", own.CASE).encode()),
        ("patches/.gitkeep", b""),
        ("tests/stacks/.gitkeep", b""),
    ):
        if not (folder / name).exists():
            fsio.write_output(folder / name, data)
            made.append(name)
    for name, text in (
        (ATTRIBUTES_NAME, with_attributes(folder)),
        (".gitignore", _with_lines(folder / ".gitignore", _IGNORE)),
    ):
        if text is not None:
            fsio.write_output(folder / name, text)
            made.append(name)
    # With its lock a folder is a project: a killed `init` that has not written it begins again.
    fsio.write_output(folder / LOCK_NAME, EMPTY + f'# Another patchq says so.\npatchq = "{__version__}"\n'.encode())
    return [LOCK_NAME, *made]


def with_attributes(folder: Path) -> bytes | None:
    """Return a project's ``.gitattributes`` with lines for the patterns that it lacks; None if it has them all."""
    return _with_lines(folder / ATTRIBUTES_NAME, _ATTRIBUTES)


def _with_lines(path: Path, lines: list[str]) -> bytes | None:
    data = fsio.read_or_none(path) or b""
    known = {words[0] for line in data.splitlines() if (words := line.split())}
    missing = "".join(f"{line}\n" for line in lines if line.split()[0].encode() not in known)
    gap = b"" if not data or data.endswith(b"\n") else b"\n"
    return data + gap + missing.encode() if missing else None
