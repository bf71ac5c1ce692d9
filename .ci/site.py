"""What mkdocs is told of this project: pages outside docs/, files that pages point at, and the report as it is today.

A link that works in the repository works in the site: what lies in docs/ keeps its path less `docs/`, what lies
elsewhere keeps its path.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: Pages that lie outside docs/, and where the site has them.
PAGES = {
    "README.md": "index.md",
    **{p: p for p in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")},
}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"^(`{3,}).*?^\1`*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_REPORT = "report/index.html"
THIS_PROJECT = f"""# The report of this project

Made with the site, from the files that it shows: [in a window of its own]({_REPORT}).
[How to read it](how-to/see-it-all.md).

<iframe src="../{_REPORT}" title="patchq's report of this project" style="width:100%;height:80vh"></iframe>
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, the report, and all else that a page or the report points at."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    report = _report()
    files.append(File.generated(config, _REPORT, content=report))
    files.append(File.generated(config, "this-project.md", content=THIS_PROJECT))
    wanted: set[str] = set()
    for file in list(files.documentation_pages()):
        text = _CODE.sub("", file.content_string)
        wanted |= {target for _, link, _ in _LINK.findall(text) if (target := _outside(_source(file.src_uri), link))}
    for path in sorted(wanted):
        if (ROOT / path).is_dir():
            target = path.removeprefix("docs/")
            files.append(File.generated(config, f"{target}/index.md", content=_listing(path)))
        elif (ROOT / path).is_file() and not files.get_file_from_path(path):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The theme's search is a dialog without a name."""
    return output.replace(' role="dialog">', ' role="dialog" aria-label="Search">', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy what the report points at; a cell's evidence is opened by a script, from JSON."""
    report = (Path(config.site_dir) / _REPORT).read_text()
    for link in set(re.findall(r'"\.\./([^"#]+)"', report)):
        source, target = ROOT / unquote(link), Path(config.site_dir) / unquote(link)
        if source.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them."""
    source, here = _source(page.file.src_uri), posixpath.dirname(page.file.src_uri)
    code = [m.span() for m in _CODE.finditer(markdown)]

    def moved(match: re.Match[str]) -> str:
        path, mark, anchor = match[2].partition("#")
        if not path or "://" in path or any(a <= match.start() < b for a, b in code):
            return match[0]
        target = _target(source, path)
        if target is None:
            return match[0]  # mkdocs says that it's not there
        return f"{match[1]}{posixpath.relpath(target, here or '.')}{mark}{anchor}{match[3]}"

    return _LINK.sub(moved, markdown) if source else markdown


def _source(src_uri: str) -> str:
    """Where a page of the site lies in the repository; empty if it's made here."""
    for source, target in PAGES.items():
        if src_uri == target:
            return source
    path = f"docs/{src_uri}"
    return path if (ROOT / path).is_file() else ""


def _target(source: str, link: str) -> str | None:
    """Where the site has what a page points at; None if the repository doesn't have it."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(link)))
    if not (ROOT / path).exists() or path.startswith(".."):
        return None
    if path in PAGES:
        return PAGES[path]
    path = path.removeprefix("docs/")
    return f"{path}/index.md" if (ROOT / path).is_dir() or (ROOT / "docs" / path).is_dir() else path


def _outside(source: str, link: str) -> str:
    """The path of a file or folder that a page points at and mkdocs doesn't bring by itself, or nothing."""
    path = link.partition("#")[0]
    if not source or not path or "://" in path:
        return ""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(path)))
    inside = found.startswith("docs/") and (ROOT / found).is_file()
    return "" if inside or found in PAGES or found.startswith("..") else found


def _listing(path: str) -> str:
    names = sorted(p.name for p in (ROOT / path).iterdir() if p.is_file() and not p.name.startswith("."))
    return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)


def _report() -> str:
    """The report of this project, as if it lay in its folder `report/`; its upstreams must be at hand."""
    from patchq.cli.verdicts import read_results
    from patchq.project.project import Project
    from patchq.report.evidence import gather
    from patchq.report.page import html

    project = Project.find(ROOT)
    if not (ROOT / ".patchq" / "store.git").is_dir():
        return "<!doctype html><title>report</title>no upstream is here yet: patchq apply\n"
    found = gather(project, read_results(project) or [], look_ahead=True)
    return html(found, ROOT, ROOT / "report")
