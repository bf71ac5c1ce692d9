"""Replay of a Dockerfile: each instruction runs on a file system that replaces the image's."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, sh
from patchq.replay._instructions import Heredoc, Instruction, Unset, assignments, expand, parse, split
from patchq.replay._machine import STAGE, CommandResult, Container
from patchq.replay._shell import ShellStep, steps_of
from patchq.replay._shims import MISSING
from patchq.replay._site import find_place
from patchq.replay._verdicts import PackageNames, Replayed, judge
from patchq.replay.limits import MOST_COMMANDS, MOST_STAGES, MOST_STEPS, too_large
from patchq.replay.outcomes import Account, Reason, StepStatus, short
from patchq.replay.package import Package, PackageChanges, SitePackages
from patchq.replay.scripts import check_limits
from patchq.system import fsio
from patchq.system.sandbox import BESIDE, Limit, Limits

_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
_SHELLS = ("sh", "bash", "dash", "ash")
#: Instructions that only describe containers.
_UNRELATED = frozenset("LABEL EXPOSE VOLUME STOPSIGNAL HEALTHCHECK USER MAINTAINER".split())  # noqa: SIM905
#: Maximum size in bytes of a script that is searched for names of the package, and maximum number of files that are
#: read from a context.
_MOST_SCRIPT, _MOST_FILES = 64 << 10, 5_000
#: Minimum length of a value that can't be a path.
_LONG = 256
_INSTALLS = re.compile(r"\b(?:pip3?|uv)\b[^;&|]*\binstall\b([^;&|]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Dockerfile with the options of `docker build`.

    :ivar where: name of the Dockerfile for messages.
    :ivar context: build context: folder of the files that can be copied.
    :ivar arguments: values of ``--build-arg``.
    """

    data: bytes
    where: str
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class _StageState:
    """State of a build stage.

    :ivar tree: tree of the package after the instructions so far.
    :ivar accounts: outcomes of instructions, including those of the stage from which this one starts.
    """

    name: str
    folder: Path
    tree: TreeId
    machine: Container | None = None
    env: dict[str, str] = field(default_factory=lambda: dict(_ENV))
    arguments: dict[str, str] = field(default_factory=dict)
    working: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    accounts: list[Account] = field(default_factory=list)
    has_base: bool = False

    @property
    def values(self) -> dict[str, str]:
        """Variables that instructions can use."""
        return {**self.arguments, **self.env}


def replay_dockerfile(
    store: Git,
    tip: CommitId,
    base: TreeId,
    build: Build,
    package: Package,
    say: Callable[[str], None],
    *,
    limits: Limits | None = None,
) -> list[Account]:
    """Replay a Dockerfile, and return the outcome of each instruction that can change the package.

    All commands are printed before the first one runs.

    :param tip: commit whose package is installed in the base image.
    :param base: tree of the release, without patches.
    :raises FormatError: if the Dockerfile can't be read.
    :raises UserError: if there is no sandbox, or a command exceeds its limits.
    """
    instructions = parse(build.data, build.where)
    with fsio.temporary_folder() as folder:
        replay = _Replay(
            store,
            tip,
            base,
            build=build,
            package=package,
            folder=folder,
            limits=limits or Limits(),
            instructions=instructions,
        )
        for line in replay.plan():
            say(line)
        for instruction in instructions:
            replay.take(instruction)
        return replay.finish()


class _Replay:
    def __init__(
        self,
        store: Git,
        tip: CommitId,
        base: TreeId,
        *,
        build: Build,
        package: Package,
        folder: Path,
        limits: Limits,
        instructions: Sequence[Instruction],
    ) -> None:
        self.store, self.tip, self.base, self.build, self.package = store, tip, base, build, package
        self.folder, self.limits, self.instructions = folder, limits, instructions
        self.start = store.tree_of([tip])[0]
        self.stages: list[_StageState] = []
        #: ARG before the first FROM.
        self.arguments: dict[str, str] = {}
        self.scripts = _scripts_of(build.context)
        tops = {top.removesuffix(".py") for top in package.tops}
        self.place = find_place(instructions, self._texts(), tops)
        files = set()
        for path in store.list_tree(tip):
            name = path.decode("utf-8", "surrogateescape").rsplit("/", 1)[-1]
            if "." in name.strip(".") and name not in ("__init__.py", "setup.py"):
                files.add(name)
        self.names = PackageNames(files=files, tops=tops, place=self.place)
        self.ignored = _ignore_rules(build)

    # What will run

    def _texts(self) -> list[str]:
        """Return texts that may contain the path of the package, with variables replaced."""
        values: dict[str, str] = dict(self.build.arguments)
        found: list[str] = []
        for one in self.instructions:
            if one.word in ("ENV", "ARG"):
                with contextlib.suppress(Unset):
                    new = assignments(one, values)
                    values |= new
                    found += new.values()
                values |= self.build.arguments
            found.append(_roughly_expanded(one.value, values))
            found += [here.text for here in one.heredocs]
        return [*found, *self.scripts.values()]

    def plan(self) -> list[str]:
        """Return a line for each command that will run."""
        lines: list[str] = []
        for one in self.instructions:
            if one.word != "RUN":
                continue
            text, program = _script_of(one, ("/bin/sh", "-c"))
            if len(text) > MOST_COMMANDS:
                raise too_large(self._where(one), f"{len(text)} bytes of shell commands", MOST_COMMANDS)
            lines += [f"{step.where}: {short(step.text)}" for step in self._steps(one, text, program)]
        if len(lines) > MOST_STEPS:
            raise too_large(self.build.where, f"{len(lines)} steps", MOST_STEPS)
        return lines

    def _where(self, instruction: Instruction) -> str:
        return f"{self.build.where}:{instruction.line}"

    # Instructions

    def take(self, instruction: Instruction) -> None:
        """Replay one instruction."""
        word = instruction.word
        if word == "ARG" and not self.stages:
            self._add_arguments(instruction, self.arguments, {})
        elif word == "FROM":
            self._from(instruction)
        elif not self.stages or word in _UNRELATED:
            known = word in _UNRELATED
            if not known and self.stages == []:
                self._early(instruction)
        else:
            handler = {
                "ARG": self._arg,
                "ENV": self._env,
                "WORKDIR": self._workdir,
                "SHELL": self._shell,
                "RUN": self._run,
                "COPY": self._copy,
                "ADD": self._copy,
                "CMD": self._at_start,
                "ENTRYPOINT": self._at_start,
                "ONBUILD": self._at_start,
            }.get(word, self._unknown)
            try:
                handler(instruction)
            except Unset as error:
                self._name(instruction, self._fate_by(instruction.value), Reason.UNSET_VARIABLE, error.args[0])

    @property
    def stage(self) -> _StageState:
        return self.stages[-1]

    def _name(self, instruction: Instruction, status: StepStatus, reason: Reason, *words: str) -> None:
        self.stage.accounts.append(
            Account(
                where=self._where(instruction),
                text=instruction.text,
                status=status,
                reason=reason,
                words=words,
                comment=instruction.comment,
            )
        )

    def _fate_by(self, text: str) -> StepStatus:
        """Return the outcome of an instruction that can't be replayed: refused if ``text`` may name the package."""
        if self.names.may_be_in(text):
            return StepStatus.REFUSED
        return StepStatus.NOT_UNDERSTOOD

    def _early(self, instruction: Instruction) -> None:
        """Begin a stage for an instruction that precedes the first FROM. Docker would refuse such an instruction."""
        self._begin("", None)
        self._name(instruction, StepStatus.NOT_UNDERSTOOD, Reason.UNKNOWN, instruction.word)

    def _unknown(self, instruction: Instruction) -> None:
        self._name(instruction, StepStatus.NOT_UNDERSTOOD, Reason.UNKNOWN, instruction.word)

    def _from(self, instruction: Instruction) -> None:
        match = re.match(r"(\S+)(?:\s+as\s+(\S+))?", instruction.value, re.IGNORECASE)
        if match:
            image, name = (match[1], match[2] or "")
        else:
            image, name = ("", "")
        with contextlib.suppress(Unset):
            image = expand(image, self.arguments)
        self._begin(name, self._stage_named(image))

    def _begin(self, name: str, parent: _StageState | None) -> None:
        if len(self.stages) >= MOST_STAGES:
            raise too_large(self.build.where, "too many stages", MOST_STAGES)
        folder = self.folder / f"stage{len(self.stages)}"
        if parent is None:
            self.stages.append(_StageState(name=name, folder=folder, tree=self.start))
            return
        machine = parent.machine
        if machine:
            folder.mkdir()
            machine = machine.copy_to(folder)
        self.stages.append(
            replace(
                parent,
                name=name,
                folder=folder,
                machine=machine,
                env=dict(parent.env),
                arguments={},
                accounts=list(parent.accounts),
            )
        )

    def _stage_named(self, name: str) -> _StageState | None:
        for stage in self.stages:
            if stage.name and stage.name.lower() == name.lower():
                return stage
        if name.isdigit() and int(name) < len(self.stages):
            return self.stages[int(name)]
        return None

    def _add_arguments(self, instruction: Instruction, into: dict[str, str], known: Mapping[str, str]) -> None:
        defaults = assignments(instruction, {**known, **into})
        for word in instruction.value.split():
            name = word.partition("=")[0]
            if name in self.build.arguments:
                into[name] = self.build.arguments[name]
            elif name in defaults:
                into[name] = defaults[name]
            elif name in self.arguments:
                into[name] = self.arguments[name]

    def _arg(self, instruction: Instruction) -> None:
        self._add_arguments(instruction, self.stage.arguments, self.stage.env)

    def _env(self, instruction: Instruction) -> None:
        try:
            self.stage.env |= assignments(instruction, self.stage.values)
        except Unset:
            # The base image may set the missing variable. A later use of the variables assigned here is reported.
            for word in instruction.value.split():
                self.stage.env.pop(word.partition("=")[0], None)

    def _workdir(self, instruction: Instruction) -> None:
        path = " ".join(split(instruction.value, self.stage.values))
        self.stage.working = posixpath.normpath(posixpath.join(self.stage.working, path))

    def _shell(self, instruction: Instruction) -> None:
        words = instruction.words
        if words:
            self.stage.shell = tuple(words)
        else:
            self._unknown(instruction)

    def _at_start(self, instruction: Instruction) -> None:
        text = self._with_scripts(instruction.value)
        if self.names.may_be_in(text) and re.search(r"\bsed\b|\bpatch\b|\bapply\b|\bcp\b|>|write|\bpip\b", text):
            self._name(instruction, StepStatus.NOT_UNDERSTOOD, Reason.AT_START)

    # RUN

    def _run(self, instruction: Instruction) -> None:
        stage = self.stage
        text, program = _script_of(instruction, stage.shell)
        if not program:
            self._name(instruction, self._fate_by(text), Reason.NO_PROGRAM, stage.shell[0])
            return
        prelude, source = self._prelude(instruction)
        for step in self._steps(instruction, text, program):
            account = Account(
                where=step.where,
                text=step.text,
                status=StepStatus.UNRELATED,
                comment=step.comment or instruction.comment,
            )
            is_shell = posixpath.basename(step.program[0]) in _SHELLS
            lines = [*prelude, *(f"{{ {line}\n}} || exit 96" for line in step.setup), step.text]
            argv = step.program
            if is_shell:
                strict = "set -u"
                if "\n" in step.text and not self._may_matter(step.text):
                    strict = "set -eu"
                script = "\n".join([strict, *lines]) + "\n"
            else:
                script = step.text
                argv = ("/bin/sh", "-euc", "\n".join([*prelude, 'exec "$@"']), "sh", *step.program)
            installs = not stage.has_base and self._installs_package(step.text)
            self._replay(
                account,
                argv,
                script,
                text=self._with_scripts("\n".join([*step.setup, step.text])),
                source=source,
                installs_base=installs and stage.tree == self.start,
            )
            stage.has_base = stage.has_base or installs

    def _steps(self, instruction: Instruction, text: str, program: tuple[str, ...]) -> list[ShellStep]:
        where = self._where(instruction)
        if not program or posixpath.basename(program[0]) not in _SHELLS:
            return [ShellStep(text=text, where=where, program=program)]
        found: list[ShellStep] = []
        for step in steps_of(text, self.build.where, instruction.line):
            last = None
            if found:
                last = found[-1]
            if (
                last
                and last.setup == step.setup
                and not self._may_matter(last.text)
                and not self._may_matter(step.text)
            ):
                # Steps that don't name the package share one run, which ends at the first step that fails.
                found[-1] = replace(last, text=f"{last.text}\n{step.text}")
            else:
                found.append(replace(step, where=where, program=program))
        return found

    def _may_matter(self, text: str) -> bool:
        return self.names.may_be_in(self._with_scripts(text)) or self._installs_package(text)

    def _installs_package(self, text: str) -> bool:
        from packaging.utils import canonicalize_name

        for match in _INSTALLS.finditer(text):
            for word in match[1].split():
                if canonicalize_name(re.split(r"[=<>!~\[@;\"']", word.strip("\"'"))[0]) == self.package.distribution:
                    return True
        return False

    def _with_scripts(self, text: str) -> str:
        """Return a text followed by the texts of the scripts that it names."""
        words = {word.rsplit("/", 1)[-1] for word in re.findall(r"[\w./+-]+", text)}
        return "\n".join([text, *(script for name, script in self.scripts.items() if name in words)])

    def _prelude(self, instruction: Instruction) -> tuple[list[str], _StageState | None]:
        """Return the commands to run before those of a RUN, and the stage that the RUN mounts, or None."""
        lines = []
        source: _StageState | None = None
        for value in instruction.all_flags("mount"):
            options = dict(part.partition("=")[::2] for part in value.split(","))
            kind = options.get("type", "bind")
            target = options.get("target") or options.get("dst") or options.get("destination") or ""
            target = posixpath.join(self.stage.working, expand(target, self.stage.values))
            if kind in ("cache", "tmpfs"):
                lines.append(f"mkdir -p {sh(target)}")
            elif kind == "bind":
                place = posixpath.normpath("/" + (options.get("source") or options.get("src") or ""))
                name = options.get("from", "")
                if name:
                    source = self._stage_named(name)
                if name:
                    root = STAGE
                else:
                    root = BESIDE
                if name and source is None:
                    self._name(instruction, self._fate_by(instruction.value), Reason.OTHER_IMAGE, name)
                where = sh(posixpath.normpath(target))
                lines.append(f"mkdir -p {where} && rmdir {where} && ln -sfn {sh(root + place.rstrip('/'))} {where}")
        lines.append(self._enter())
        return lines, source

    def _enter(self) -> str:
        working = sh(self.stage.working)
        return f"mkdir -p {working} 2>/dev/null; cd {working} || exit 96"

    # COPY and ADD

    def _copy(self, instruction: Instruction) -> None:
        stage = self.stage
        words = instruction.words or split(instruction.value, stage.values)
        if len(words) < 2:
            self._unknown(instruction)
            return
        *sources, target = words
        if instruction.words:
            target = expand(target, stage.values)
        is_folder = target.endswith(("/", "/.")) or target in (".", "..")
        target = posixpath.normpath(posixpath.join(stage.working, target))
        touches = _overlaps(target, self.place)
        if touches:
            status = StepStatus.REFUSED
        else:
            status = StepStatus.NOT_UNDERSTOOD
        remote = _remote(sources)
        if remote:
            self._name(instruction, status, Reason.NETWORK, *remote)
        texts, sources = _texts_of(instruction, [word for word in sources if word not in remote], stage.values)
        name = instruction.flag("from")
        other = None
        if name:
            other = self._stage_named(expand(name, stage.values))
        if name and other is None:
            is_program = "bin" in (posixpath.basename(target), posixpath.basename(posixpath.dirname(target)))
            if not is_program:
                self._name(instruction, status, Reason.OTHER_IMAGE, name)
            return
        if not sources and not texts:
            return
        wish = {
            "root": STAGE if other else BESIDE,
            "sources": sources,
            "texts": texts,
            "target": target,
            "is_folder": is_folder or len(sources) + len(texts) > 1,
            "unpack": instruction.word == "ADD",
            "mode": instruction.flag("chmod") if re.fullmatch(r"[0-7]{3,4}", instruction.flag("chmod")) else "",
            "ignored": [] if other else self.ignored,
        }
        account = Account(
            where=self._where(instruction),
            text=instruction.text,
            status=StepStatus.UNRELATED,
            comment=instruction.comment,
        )
        machine = self._machine()
        if target.startswith("/usr/") and not _overlaps(target, self.place):
            machine.make_point(target if is_folder else posixpath.dirname(target))
        if other and other.tree != self.start and stage.tree == self.start and touches:
            self._copy_stage(account, wish, other)
            return
        self._replay(
            account,
            ("python3", "-I", "/.patchq/copy.py"),
            json.dumps(wish),
            text=f"cp {' '.join(sources)} {target}" if touches else "",
            source=other,
            missing=status,
        )

    def _copy_stage(self, account: Account, wish: Mapping[str, object], other: _StageState) -> None:
        """Copy the package from another stage. The other stage's patches become patches of this stage."""
        before = len(self.stage.accounts)
        self._replay(account, ("python3", "-I", "/.patchq/copy.py"), json.dumps(wish), text="", source=other)
        if self.stage.tree == other.tree:
            kept = []
            for one in self.stage.accounts[before:]:
                if one.status is not StepStatus.TAKEN:
                    kept.append(one)
            self.stage.accounts[before:] = [*other.accounts, *kept]

    # Commands

    def _machine(self) -> Container:
        stage = self.stage
        if stage.machine is None:
            stage.folder.mkdir()
            site = SitePackages(self.store, self.package, self.base, stage.folder / "site")
            stage.machine = Container(stage.folder, site, self.place, self.build.context)
            stage.machine.create(self.tip)
        return stage.machine

    def _replay(
        self,
        account: Account,
        argv: Sequence[str],
        script: str,
        *,
        text: str,
        source: _StageState | None = None,
        installs_base: bool = False,
        missing: StepStatus | None = None,
    ) -> None:
        """Run a command, and add its outcomes to the stage.

        :param missing: outcome of a COPY whose source file is missing.
        """
        stage = self.stage
        machine = self._machine()
        if stage.working.startswith("/usr/"):
            machine.make_point(stage.working)
        env = {**stage.arguments, **stage.env}
        outcome = machine.run(argv, script, env, limits=self.limits, stage=source.machine if source else None)
        if outcome.ran.over is Limit.TIME:
            self._refill(machine)
            words = (self.limits.of(Limit.TIME),)
            stage.accounts.append(replace(account, status=StepStatus.REFUSED, reason=Reason.TOO_LONG, words=words))
            return
        check_limits(account, outcome.ran, self.limits)
        changed = machine.site.read(stage.tree, account.where)
        if missing and outcome.ran.code == MISSING:
            self._restore(machine, changed, outcome)
            words = (outcome.ran.message,)
            stage.accounts.append(replace(account, status=missing, reason=Reason.MISSING_SOURCE, words=words))
            return
        step = Replayed(
            account=account,
            text=text,
            outcome=outcome,
            changed=changed,
            before=stage.tree,
            installs_base=installs_base,
        )
        if installs_base:
            stage.accounts[:] = map(_before_base, stage.accounts)
        stage.accounts += judge(step, self.package, self.names)
        if outcome.ran.code:
            self._restore(machine, changed, outcome)
        else:
            stage.tree = changed.tree

    def _restore(self, machine: Container, changed: PackageChanges, outcome: CommandResult) -> None:
        """Revert the changes of a failed command, so that they don't become part of the next patch."""
        if changed.tree != self.stage.tree or changed.generated:
            self._refill(machine)

    def _refill(self, machine: Container) -> None:
        fsio.remove_folder(machine.site.folder)
        machine.site.fill(self.stage.tree)

    def finish(self) -> list[Account]:
        """Return the outcomes of the last stage.

        Also return the steps of other stages whose changes could become patches, marked as not part of the last stage.
        """
        if not self.stages:
            return []
        last = self.stages[-1]
        found = list(last.accounts)
        known = {id(one) for one in found}
        for stage in self.stages[:-1]:
            for one in stage.accounts:
                if id(one) in known or one.status is not StepStatus.TAKEN:
                    continue
                known.add(id(one))
                found.append(replace(one, status=StepStatus.UNRELATED, reason=Reason.OTHER_STAGE, trees=None))
        found += self._shadows(last)
        return found

    def _shadows(self, stage: _StageState) -> list[Account]:
        """Return an outcome if ``PYTHONPATH`` makes Python import another copy of the package; else, no outcome."""
        folders = []
        for one in stage.env.get("PYTHONPATH", "").split(":"):
            if one.startswith("/"):
                folders.append(one)
        if not folders or stage.machine is None:
            return []
        tests = []
        for folder in folders:
            for top in sorted(self.package.tops):
                tests.append(f"test -e {sh(f'{folder}/{top}')}")
        outcome = stage.machine.run(("/bin/sh",), " || ".join(tests) + "\n", {}, limits=self.limits)
        if outcome.ran.code or self.place in folders:
            return []
        where, text = self.build.where, "PYTHONPATH"
        for instruction in self.instructions:
            if instruction.word == "ENV" and "PYTHONPATH" in instruction.value:
                where, text = self._where(instruction), instruction.text
        status, reason = StepStatus.NOT_UNDERSTOOD, Reason.SHADOWS
        return [Account(where=where, text=text, status=status, reason=reason, paths=tuple(folders))]


def _roughly_expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace those variables of a shell command whose values are known."""

    def one(match: re.Match[str]) -> str:
        value = values.get(match[1], match[0])
        if len(value) < _LONG:
            return value
        return match[0]

    return re.sub(r"\$\{?(\w+)\}?", one, text)


def _before_base(account: Account) -> Account:
    """Return the outcome of a step that runs before the package is installed, and so can't change the package."""
    if account.status is StepStatus.NOT_UNDERSTOOD:
        return replace(account, status=StepStatus.UNRELATED)
    return account


def _overlaps(target: str, place: str) -> bool:
    """Return True if one of two folders contains the other."""
    return f"{target.rstrip('/')}/".startswith(f"{place}/") or f"{place}/".startswith(f"{target.rstrip('/')}/")


def _script_of(instruction: Instruction, shell: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the script of a RUN, and the script's interpreter. The interpreter is empty for a Windows shell."""
    words = instruction.words
    if words is not None:
        return shlex.join(words), ("/bin/sh",)
    text = instruction.value
    bodies = instruction.heredocs
    if len(bodies) == 1 and re.fullmatch(r"<<-?[\"']?[\w.+-]+[\"']?", text):
        text = bodies[0].text
        first = text.split("\n", 1)[0]
        if first.startswith("#!"):
            program = first[2:].split()
            return text, tuple(program[1:] if program[:1] == ["/usr/bin/env"] else program)
    else:
        text = "\n".join([text, *(f"{body.text}{body.name}" for body in bodies)])
    name = posixpath.basename(shell[0])
    if name in ("powershell", "pwsh", "cmd", "powershell.exe", "cmd.exe"):
        return text, ()
    return text, tuple(word for word in shell if word != "-c")


def _remote(sources: Sequence[str]) -> list[str]:
    """Return the sources of an ADD that are URLs or git repositories."""
    found = []
    for word in sources:
        if re.match(r"(?:https?|ftp)://|git@|\S+\.git(?:#|$)", word):
            found.append(word)
    return found


def _texts_of(
    instruction: Instruction, sources: Sequence[str], values: Mapping[str, str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the names and texts of a COPY's here-documents, and the COPY's other sources."""
    by_name: dict[str, Heredoc] = {here.name: here for here in instruction.heredocs}
    texts, others = [], []
    for word in sources:
        name = word.removeprefix("<<").removeprefix("-").strip("\"'")
        here = None
        if word.startswith("<<"):
            here = by_name.get(name)
        if here:
            texts.append((name, here.text if here.plain else expand(here.text, values)))
        else:
            others.append(word)
    return texts, others


def _scripts_of(context: Path) -> dict[str, str]:
    """Return the texts of the scripts in a build context, by name."""
    found: dict[str, str] = {}
    for path in itertools.islice(_files_below(context), _MOST_FILES):
        if path.suffix not in (".sh", ".py", ".bash", "") or path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _MOST_SCRIPT or "ockerfile" in path.name:
            continue
        found.setdefault(path.name, path.read_bytes().decode("utf-8", "replace"))
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield Path(at, name)


def _ignore_rules(build: Build) -> list[str]:
    """Return the rules of the Dockerfile's ``Dockerfile.dockerignore`` or, without it, of ``.dockerignore``."""
    for path in (build.context / f"{Path(build.where).name}.dockerignore", build.context / ".dockerignore"):
        if path.is_file() and not path.is_symlink():
            data = fsio.read_limited(path, 1 << 20) or b""
            lines = [line.strip() for line in data.decode("utf-8", "replace").split("\n")]
            rules: list[str] = []
            for line in lines:
                if line and not line.startswith("#"):
                    rules.append(line)
            return rules
    return []
