"""The command ``issue``: an upstream bug report for the bug that a patch fixes.

A report contains a reproducer, versions, and test results on upstream's ref without patches. Its text comes
from ``patches/<upstream>/reports/<patch>.toml``, or from the patch's message.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchq.contribute._selection import place, set_with
from patchq.contribute.dossier import OWNER, read_owner
from patchq.contribute.proposal import Owner
from patchq.environment.machine import this_machine
from patchq.errors import FormatError, UserError
from patchq.extras import need
from patchq.formats import toml
from patchq.formats.header import without_trailers
from patchq.formats.render import render
from patchq.project.project import Project
from patchq.proofs.judge import state_of
from patchq.proofs.plan import planning
from patchq.proofs.run import checkout, run_pytest, trees_lock
from patchq.sources.pins import Fetcher
from patchq.sources.rules import Rules, read_rules
from patchq.system import fsio, project_files
from patchq.system.paths import check_inside

_KEYS = ("title", "component", "reproducer", "evidence", "describe", "steps", "expected", "related")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Bug report.

    :ivar facts: values that the tests recorded, one row per test case.
    :ivar columns: names of the values in ``facts``.
    :ivar outcomes: one line for each test that failed or did not run.
    """

    upstream: str
    patch: str
    ref: str
    commit: str
    title: str
    component: str
    describe: str
    steps: str
    expected: str
    related: str
    reproducer_name: str
    reproducer: str
    columns: tuple[str, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    outcomes: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    no_gpu: bool
    url: str
    rules: Rules = field(repr=False)
    owner: Owner = field(default_factory=Owner)

    @property
    def language(self) -> str:
        """Language of the reproducer's code block."""
        return {".cu": "cuda", ".cpp": "cpp", ".py": "python", ".sh": "bash"}.get(Path(self.reproducer_name).suffix, "")


def folder_of(project: Project, patch: str) -> Path:
    """Return the folder into which a patch's report is written."""
    return project.layout.private / "issue" / patch


def bug_report(project: Project, patch: str, *, onto: str = "", set_name: str = "", run: bool = True) -> Report:
    """Collect the content of a bug report for a patch.

    :param onto: upstream's ref; by default the newest.
    :param run: run the reproducer on upstream's ref without patches.
    :raises UserError: if the patch or ref doesn't exist, if the reproducer can't run, or if the extra
        ``contribute`` is not installed.
    """
    need("contribute", "patchq issue")
    set_name = project.choose_set(set_name)
    with project.locked("issue"):
        plan = place(project, [patch], "", "", onto, set_name)
        fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
        (base,) = fetcher.fetch([plan.onto])
    name, upstream = plan.chosen[0], plan.upstream
    header = plan.headers[name]
    texts = _texts(project, upstream, name)
    files = header.values("Proof")
    if texts.get("evidence"):
        files = (texts["evidence"],)
    tests: Sequence[Mapping[str, str]] | None = ()
    if run:
        project.say(f"running {', '.join(files)} on {plan.onto.ref} without patches")
        with planning(project, set_with(project, plan, set_name)) as whole:
            bare = whole.at("bare", upstream, base.commit)
        with trees_lock(project):
            done = run_pytest(project, checkout(project, bare, 0), files)
        tests = done.tests
        if not tests:
            raise UserError(
                f"the evidence gave no test result: {state_of(tests, done.output)[1]}",
                hint="`--no-run` writes the report without test results",
            )
    columns, facts, outcomes = _results(tests or ())
    machine = this_machine()
    system = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    versions = [
        ("OS", system),
        ("Python", machine.python),
        ("torch", machine.torch),
        ("nvcc", machine.nvcc),
        ("GPU", machine.gpu or "none"),
        ("CUDA of the driver", machine.driver_cuda),
    ]
    reproducer = texts.get("reproducer", "")
    text = ""
    if reproducer:
        check_inside(reproducer, "reproducer")
        data = project_files.read(project.layout.root, project.layout.root / reproducer)
        if data is None:
            raise UserError(f"{reproducer} does not exist", hint=f"correct {report_path(project, upstream, name)}")
        text = data.decode("utf-8", "replace").rstrip()
    paragraphs = without_trailers(header.message).split("\n\n")[1:]
    config = project.lock.upstreams[upstream]
    return Report(
        upstream=upstream,
        patch=name,
        ref=plan.onto.ref,
        commit=plan.onto.commit or "",
        title=texts.get("title") or header.subject,
        component=texts.get("component", ""),
        describe=texts.get("describe") or "\n\n".join(paragraphs[:-1] or paragraphs),
        steps=texts.get("steps", ""),
        expected=texts.get("expected") or (paragraphs[-1] if len(paragraphs) > 1 else ""),
        related=texts.get("related", ""),
        reproducer_name=Path(reproducer).name,
        reproducer=text,
        columns=columns,
        facts=facts,
        outcomes=outcomes,
        versions=tuple((key, value) for key, value in versions if value),
        no_gpu=run and not machine.gpu,
        url=config.url,
        rules=read_rules(project.layout, project.store, upstream, base.commit),
        owner=read_owner(folder_of(project, name)),
    )


def report_path(project: Project, upstream: str, patch: str) -> Path:
    """Return the path of the file with the user's own text for a report."""
    return project.layout.root / "patches" / upstream / "reports" / f"{patch}.toml"


def _texts(project: Project, upstream: str, patch: str) -> dict[str, str]:
    path = report_path(project, upstream, patch)
    data = project_files.read(project.layout.root, path)
    if data is None:
        return {}
    try:
        raw = toml.loads(data)
        if unknown := sorted(raw.keys() - set(_KEYS)):
            raise ValueError(f"unknown keys {', '.join(unknown)} (known: {', '.join(_KEYS)})")
        texts = {}
        for key, value in raw.items():
            texts[key] = str(value).strip()
        return texts
    except ValueError as error:
        raise FormatError(f"{path}: {error}", hint=f"correct {path}") from None


def _results(
    tests: Sequence[Mapping[str, str]],
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Return the facts as columns and rows, and a line for each test that failed or did not run."""
    noted = []
    for t in tests:
        if t.get("facts"):
            noted.append((_case(t["test"]), json.loads(t["facts"])))
    columns: dict[str, None] = {}
    for _, facts in noted:
        columns.update(dict.fromkeys(facts))
    rows = []
    for case, facts in noted:
        rows.append((case, tuple(facts.get(column, "") for column in columns)))
    words = {"assertion": "fails", "error": "fails", "skipped": "not run"}
    lines = []
    for t in tests:
        if t["outcome"] in words:
            message = next(iter(t["message"].splitlines()), "")
            lines.append(f"{_case(t['test'])}: {words[t['outcome']]}: {message}")
    return tuple(columns), tuple(rows), tuple(lines)


def _case(test: str) -> str:
    """Return a readable name of a test case: its parameters, or else its function name."""
    name = test.rpartition("::")[2]
    return name.partition("[")[2].removesuffix("]") or name.removeprefix("test_").replace("_", " ")


def body(report: Report, *, inline: bool = True) -> str:
    """Render the report as answers to the questions of upstream's issue form, or to default questions.

    :param inline: include the reproducer's text instead of a link to its file.
    """
    answers = {
        "describe": report.describe,
        "steps": render("issue/steps.md.j2", r=report, inline=inline).strip(),
        "expected": report.expected,
        "environment": render("issue/environment.md.j2", r=report).strip(),
        "context": render("issue/context.md.j2", r=report).strip(),
        "component": report.component,
    }
    questions = _questions(report.rules)
    asked = {ask for _, ask in questions}
    rest = []
    for k in ("steps", "expected", "context"):
        if k not in asked and answers[k]:
            rest.append(answers[k])
    parts = []
    for label, ask in questions:
        answer = answers.get(ask, "") or "_to be filled in by the sender_"
        parts.append(f"### {label}\n\n" + "\n\n".join([answer, *(rest if ask == "describe" else [])]))
    return "\n\n".join(parts) + "\n"


_DEFAULT = [
    ("Describe the bug", "describe"),
    ("Steps to reproduce", "steps"),
    ("Expected", "expected"),
    ("Environment", "environment"),
    ("Related", "context"),
]


def _questions(rules: Rules) -> list[tuple[str, str]]:
    """Return each field in upstream's form as its label and the name of the report's field with the answer."""
    import yaml

    form = rules.bug_form
    if form is None or not form.path.endswith((".yml", ".yaml")):
        return _DEFAULT
    try:
        items: list[Any] = yaml.safe_load(form.text)["body"]
        labels = []
        for i in items:
            if i.get("type") in ("textarea", "input", "dropdown"):
                labels.append(str(i["attributes"]["label"]))
    except (yaml.YAMLError, KeyError, TypeError):
        return _DEFAULT
    words = {
        "environment": "environment",
        "version": "environment",
        "reproduc": "steps",
        "expected": "expected",
        "context": "context",
        "component": "component",
        "describe": "describe",
        "bug": "describe",
    }
    questions: list[tuple[str, str]] = []
    for label in labels:
        questions.append((label, next((v for k, v in words.items() if k in label.lower()), "")))
    return questions


def title(report: Report) -> str:
    """Return the report's title, with the prefix that upstream's form prescribes."""
    import yaml

    form = report.rules.bug_form
    prefix = ""
    if form and form.path.endswith((".yml", ".yaml")):
        try:
            prefix = str(yaml.safe_load(form.text).get("title", ""))
        except (yaml.YAMLError, AttributeError):
            prefix = ""
    return prefix.rstrip() + " " * bool(prefix) + report.title


def write_report(project: Project, report: Report, target: Path | None) -> Path:
    """Write a report's folder and return its path.

    :param target: additional file to write the report to, as one document.
    """
    folder = folder_of(project, report.patch)
    files = {"title.txt": f"{title(report)}\n", "body.md": body(report)}
    if not (folder / OWNER).exists():
        files[OWNER] = render("pr/owner.toml.j2", what="report", command="issue")
    for name, text in files.items():
        fsio.write_atomic(folder / name, text.encode())
    if target:
        note = (
            f"*Draft of an issue for {report.upstream}, not sent. The sender is responsible for it, and runs the "
            "reproducer first.*"
        )
        text = f"# {title(report)}\n\n{note}\n\n{body(report, inline=False)}"
        fsio.write_atomic(target.resolve(), text.encode())
    return folder
