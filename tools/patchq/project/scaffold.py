"""Initial files of a project, which ``init`` writes."""

from __future__ import annotations

from pathlib import Path

from patchq import __version__
from patchq.errors import UserError
from patchq.formats.lockedit import EMPTY
from patchq.project import own
from patchq.system import fsio, project_files
from patchq.system.paths import LOCK_NAME

_VERSION_COMMENT = b"# Version of patchq that made this project. Other versions print a note that they differ.\n"
_IGNORE = ["/.patchq/", "/dist/"]
#: Attributes of a project's files, which git needs to merge them.
ATTRIBUTES = [
    "patches/**/*.patch -text -whitespace",
    "patches/*/*/series merge=union",
    "patches/*/ledger.jsonl merge=union",
    "patches/*/rr-cache/** -text -diff",
]
ATTRIBUTES_NAME = ".gitattributes"
#: Actions by commit, because a tag can be moved. A test compares these lines with this project's
#: workflows.
_ACTIONS = {
    "@CHECKOUT@": "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "@SETUP_PYTHON@": "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0",
    "@UPLOAD@": "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
    "@DOWNLOAD@": "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1",
}
#: Requirements of patchq with its extras, for the workflows: `check` compares C++ definitions.
REQUIREMENTS_NAME = ".github/patchq.txt"
#: Install patchq from a commit or file with a hash, and its requirements with hashes. Anyone may
#: register a free name.
_INSTALL = f"""\
case "$PATCHQ" in
  {own.CASE}) ;;
  *) echo "::error::set the variable PATCHQ: patchq @ git+URL@COMMIT, or patchq @ URL#sha256=HASH"; exit 1;;
esac
python -m pip install --no-deps -r {REQUIREMENTS_NAME}
python -m pip install --no-deps --no-build-isolation "$PATCHQ"
python -m pip check
"""
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
      - uses: @CHECKOUT@
        with: {persist-credentials: false}
      - uses: @SETUP_PYTHON@
        with: {python-version: "3.11"}
      - run: |
          @INSTALL@
        env: {PATCHQ: "@PATCHQ@"}
      - run: patchq check
      - run: patchq apply
      # What upstream's newest would cost: an annotation on each patch that stops there. It fails
      # nothing.
      - if: github.event_name == 'schedule'
        run: patchq forecast --newest --annotate
      - if: always()
        run: patchq report --html report/index.html --markdown "$GITHUB_STEP_SUMMARY" --look-ahead
      - if: always()
        uses: @UPLOAD@
        with: {name: report, path: report}
"""
_REBASES = """\
# On a new release of an upstream: one pull request that carries the stack onto it. It is edited in
# place, and never opened again once somebody closed it. Allow Actions to create pull requests in
# the repository's settings.
name: rebases
on:
  schedule: [{cron: "43 4 * * *"}]
  workflow_dispatch:
    inputs:
      name: {description: "an upstream; all by default", default: ""}
      onto: {description: "a ref; the newest release by default", default: ""}
permissions: {}
concurrency: {group: rebases, cancel-in-progress: false}
jobs:
  # Proofs run upstream's code. Nothing in this job can write to the repository.
  carry:
    runs-on: ubuntu-latest
    permissions: {contents: read, pull-requests: read}
    outputs: {carried: "${{ steps.follow.outputs.carried }}"}
    steps:
      - uses: @CHECKOUT@
        with: {persist-credentials: false}
      - id: follow
        uses: ./.github/actions/follow
        with:
          name: ${{ inputs.name }}
          onto: ${{ inputs.onto }}
          carry: carried
          patchq: "@PATCHQ@"
      - if: "!cancelled()"
        uses: @UPLOAD@
        with: {name: carried, path: carried, if-no-files-found: ignore}
  # This job pushes the branch and opens the pull request. It runs nothing of upstream's.
  send:
    needs: carry
    if: "!cancelled() && needs.carry.outputs.carried"
    runs-on: ubuntu-latest
    permissions: {contents: write, pull-requests: write}
    steps:
      # With its credentials, which push the branch.
      - uses: @CHECKOUT@
      - uses: @DOWNLOAD@
        with: {name: carried, path: carried}
      - uses: ./.github/actions/follow
        with:
          send: carried
          patchq: "@PATCHQ@"
"""
_ACTION = """\
name: follow
description: Carries the stacks of a patchq project onto a new release, as a pull request
inputs:
  name: {description: "an upstream; all that have patches by default", default: ""}
  onto: {description: "a ref; the newest release by default", default: ""}
  carry: {description: "a folder to fill for `send`: carry and prove only; needs no token that may write", default: ""}
  send: {description: "the folder that `carry` filled: push and open only, without any proof", default: ""}
  options: {description: "more options of patchq follow, separated by blanks", default: ""}
  patchq: {description: "patchq @ git+URL@COMMIT, or patchq @ URL#sha256=HASH", required: true}
  token:
    description: "to send, it may write contents and pull requests; GitHub's own starts no workflow for what it opens"
    default: ${{ github.token }}
outputs:
  carried: {description: "not empty if there is something to send", value: "${{ steps.follow.outputs.carried }}"}
runs:
  using: composite
  steps:
    - uses: @SETUP_PYTHON@
      with: {python-version: "3.11"}
    - shell: bash
      env: {PATCHQ: "${{ inputs.patchq }}"}
      run: |
        @INSTALL@
    - id: follow
      shell: bash
      env:
        GITHUB_TOKEN: ${{ inputs.token }}
        NAME: ${{ inputs.name }}
        ONTO: ${{ inputs.onto }}
        CARRY: ${{ inputs.carry }}
        SEND: ${{ inputs.send }}
        OPTIONS: ${{ inputs.options }}
      run: |
        set -- ${NAME:+"$NAME"} ${ONTO:+--onto "$ONTO"} ${CARRY:+--dry-run "$CARRY"} ${SEND:+--send "$SEND"} $OPTIONS
        code=0
        patchq follow "$@" || code=$?
        # One upstream in trouble doesn't hide another's release.
        if [ -n "$CARRY" ] && [ -n "$(find "$CARRY" -name prepared.json 2>/dev/null)" ]; then
          echo carried=yes >> "$GITHUB_OUTPUT"
        fi
        exit $code
"""


def _filled(workflow: str) -> bytes:
    """Insert the pinned actions and the source of patchq into a workflow template."""
    for name, action in _ACTIONS.items():
        workflow = workflow.replace(name, action)
    lines = []
    for line in workflow.splitlines():
        indent, mark, _ = line.partition("@INSTALL@")
        if mark:
            lines += [indent + part for part in _INSTALL.splitlines()]
        else:
            lines.append(line)
    source = own.source() or "${{ vars.PATCHQ }}"
    return "\n".join([*lines, ""]).replace("@PATCHQ@", source).encode()


def requirements(*, every_extra: bool = False) -> bytes:
    """Return patchq's requirements with hashes.

    :param every_extra: True to include requirements of the extra ``all`` (``locks/patchq-all.txt``).
    """
    name = "requirements.txt"
    if every_extra:
        name = "requirements-all.txt"
    return (Path(__file__).parents[1] / "templates" / "project" / name).read_bytes()


def init(folder: Path) -> list[str]:
    """Create a project in ``folder``; return the new files. Existing files are kept.

    :raises UserError: if the folder already is a project.
    """
    folder = folder.resolve()
    if (folder / LOCK_NAME).exists():
        raise UserError(f"{folder} is a project already", hint="`patchq status` shows its state")
    made = []
    for name, data in (
        (".github/workflows/patches.yml", _filled(_WORKFLOW)),
        (".github/workflows/rebases.yml", _filled(_REBASES)),
        (".github/actions/follow/action.yml", _filled(_ACTION)),
        (REQUIREMENTS_NAME, requirements(every_extra=True)),
        ("patches/.gitkeep", b""),
        ("tests/stacks/.gitkeep", b""),
    ):
        project_files.refuse_links(folder, folder / name)
        if not (folder / name).exists():
            fsio.write_output(folder / name, data)
            made.append(name)
    for name, text in (
        (ATTRIBUTES_NAME, with_attributes(folder)),
        (".gitignore", _with_lines(folder, ".gitignore", _IGNORE)),
    ):
        if text is not None:
            fsio.write_output(folder / name, text)
            made.append(name)
    # The lock makes a folder a project. It is written last, so that an interrupted `init` can be
    # repeated.
    fsio.write_output(
        folder / LOCK_NAME,
        EMPTY + _VERSION_COMMENT + f'patchq = "{__version__}"\n'.encode(),
    )
    return [LOCK_NAME, *made]


def with_attributes(folder: Path) -> bytes | None:
    """Return a project's ``.gitattributes`` with missing lines added; None if no line is missing."""
    return _with_lines(folder, ATTRIBUTES_NAME, ATTRIBUTES)


def _with_lines(folder: Path, name: str, lines: list[str]) -> bytes | None:
    data = project_files.read(folder, folder / name) or b""
    known = set()
    for present in data.splitlines():
        if present.strip():
            known.add(present.split()[0])
    missing = []
    for line in lines:
        if line.split()[0].encode() not in known:
            missing.append(line)
    if not missing:
        return None
    if data and not data.endswith(b"\n"):
        data += b"\n"
    return data + "".join(f"{line}\n" for line in missing).encode()
