"""Start-up code that common tools install, identified by its content.

A file's name, or its row in a RECORD, doesn't prove what the file does. Each entry of the tables in this
module is therefore a whole line of a ``.pth`` file, or the SHA-256 of a whole module. The entries come from
releases of virtualenv, uv, setuptools, coverage and pytest-cov, and from python3-minimal of Debian and
Ubuntu.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple


class KnownLine(NamedTuple):
    """Effects of known start-up code.

    :ivar imports: Modules that the code imports, if they exist.
    :ivar owner: Distribution whose RECORD identifies these modules. If empty, only their content can identify them.
    :ivar claims: Modules that the code adds to ``sys.modules`` or finds with its own finder.
    :ivar front: True if the code puts the paths in its ``.pth`` file first in ``sys.path``.
    """

    imports: tuple[str, ...] = ()
    owner: str = ""
    claims: tuple[str, ...] = ()
    front: bool = False


_COV_CORE = (
    "import os, sys;exec('if \\'COV_CORE_SOURCE\\' in os.environ:\\n try:\\n"
    "  from pytest_cov.embed import init\\n"
    "  init()\\n except Exception as exc:\\n  sys.stderr.write(\\n"
    '   "pytest-cov: Failed to setup subprocess coverage. "\\n'
    '   "Environ: {0!r} "\\n   "Exception: {1!r}\\\\n".format(\\n'
    "    dict((k, v) for k, v in os.environ.items() if"
    " k.startswith(\\'COV_CORE\\')),\\n    exc\\n   )\\n  )\\n')"
)
_COVERAGE_SLUG = (
    'import sys; exec(\'import os\\n\\nif os.getenv("COVERAGE_PROCESS_START") or'
    ' os.getenv("COVERAGE_PROCESS_CONFIG"):\\n try:\\n  import coverage\\n except:\\n  pass\\n'
    ' else:\\n  coverage.process_startup(slug="pth")\')'
)
#: Written by users, as coverage's documentation recommends. coverage 7.10 and newer install their own file.
_COVERAGE = "import coverage; coverage.process_startup()"
_COVERAGE_TRY = 'import sys; exec("try: import coverage; coverage.process_startup()\\nexcept ImportError: pass")'
#: Written by easy_install. The second line moves the paths between both lines to the front of ``sys.path``.
_EASY_START = "import sys; sys.__plen = len(sys.path)"
_EASY_END = (
    "import sys; new=sys.path[sys.__plen:]; del sys.path[sys.__plen:]; "
    "p=getattr(sys,'__egginsert',0); sys.path[p:p]=new; sys.__egginsert = p+len(new)"
)
_DISTUTILS = (
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, '{}') == 'local'; "
    "enabled and __import__('_distutils_hack').add_shim();"
)
#: Known lines, without white space at their ends.
_LINES = {
    "import _virtualenv": KnownLine(("_virtualenv",)),
    _DISTUTILS.format("local"): KnownLine(("_distutils_hack",), "setuptools"),
    _DISTUTILS.format("stdlib"): KnownLine(("_distutils_hack",), "setuptools"),
    _COVERAGE: KnownLine(("coverage",), "coverage"),
    _COVERAGE_TRY: KnownLine(("coverage",), "coverage"),
    _COVERAGE_SLUG: KnownLine(("coverage",), "coverage"),
    _COV_CORE: KnownLine(("pytest_cov",), "pytest-cov"),
    _EASY_START: KnownLine(),
    _EASY_END: KnownLine(front=True),
}

#: Written by ``build --thin``. The imported module must have a known content.
_THIN = re.compile(r"import (_patchq_thin_\w+)")
_EDITABLE = re.compile(r"import (__editable___\w+_finder); \1\.install\(\)")
_ROOT = r"(?:sys\._getframe\(1\)\.f_locals\['sitedir'\]|'[^'\\]*')"
_PKG = r"'[\w.]+'"
#: ``*-nspkg.pth`` of setuptools: the first form up to version 41, the two others since then.
_NAMESPACE = re.compile(
    r"import sys, ?types, ?os;"
    r"(?:has_mfs = sys\.version_info > \(3, 5\);)?"
    rf"p = os\.path\.join\({_ROOT}, \*\([\w', ]+\)\);"
    r"(?:"
    rf"ie = os\.path\.exists\(os\.path\.join\(p, ?'__init__\.py'\)\);"
    rf"m = not ie and sys\.modules\.setdefault\({_PKG}, ?types\.ModuleType\({_PKG}\)\);"
    r"|"
    r"importlib = (?:has_mfs and )?__import__\('importlib\.util'\);"
    r"(?:has_mfs and )?__import__\('importlib\.machinery'\);"
    rf"m = (?:has_mfs and )?sys\.modules\.setdefault\({_PKG}, importlib\.util\.module_from_spec\("
    rf"importlib\.machinery\.PathFinder\.find_spec\({_PKG}, \[os\.path\.dirname\(p\)\]\)\)\);"
    rf"m = m or sys\.modules\.setdefault\({_PKG}, types\.ModuleType\({_PKG}\)\);"
    r")"
    r"mp = \(m or \[\]\) and m\.__dict__\.setdefault\('__path__', ?\[\]\);"
    r"\(p not in mp\) and mp\.append\(p\)"
    rf"(?:;m and setattr\(sys\.modules\[{_PKG}\], {_PKG}, m\))?"
)

#: SHA-256 of modules that known lines or interpreters import.
_MODULES = frozenset(
    {
        # __init__.py of thin wheels.
        "c94c1c0d9f4f1ce62d96a1cbf1045b5cd3ab628ac013808acbfa251f8d23a713",
        # _virtualenv.py of virtualenv 20.0 to 21.15.
        "07584d2a5d13e0811eb567d78ed2aca0fb60e7defff59a01ca7a48d907bdea51",
        "0aeb86546345c1d0fada097536e35525714d5cdbcc2d8eb3f9912a955044fcff",
        "0f20351ea7e90039c46d3fabdef991f28b1e3ff33eb13ee6f0d5cd21ea0e8b14",
        "684b8c07932ba4a84ac2e5ae9afe49ef04e92bac3d8d4191d455cf09d093e5fc",
        "bec6155ff7bfc88f8e79e481f27fd7ee0a3b40eeca9bfeb41f4c4b997b2f8100",
        "c9199315871b11b12df226f890a38e66e63191e1adbfb11a66e6861151b33fca",
        "ce57d5e0d9b5d7356cb42da7450ba8f9359bdf693e335f4c921626943c77e64d",
        # _virtualenv.py of uv 0.1 to 0.13.
        "6cf30c56faf2a55228914dbbd17f8088ed371ebb08f5e7fa6fd931f913fcaf1d",
        "cfb3db86aaa53bb62b5ff764970bec2d71c9228590a0ebec57f6ec926cc0bf1a",
        "ee52b2e2e720a40885a6b4b90c40e28e5c70e550af74d5efd169eaa5db2a6f6f",
        # _distutils_hack of setuptools 50 to 84. Debian installs it without a RECORD.
        "4d27a48545b57dd137ae35376fcf326d2064271084a487960686f8704b94de4a",
        "46849a60a7cc85189cf6b5ac62b3f135004862ce6a96540a81c95ef6fbc4dc3e",
        "4bf5b0bc8f8af7ce7096e96f7167cf4f776f2cc0983f5c8f876ca780b3a67781",
        "1542e30b6d07156f447ab4bcaec4a3a330feb93167d5dcaf548f6d6b2cdb852c",
        "df81e6bcba34ee3e3952f776551fb669143b9490fdd6c4caeb32609f97e985b4",
        "4c2531daa12158dcabb8bce3e03386640407dfd866d9f27fc0377dd2894d3a6a",
        "ced72e54431ecf2d8d7dbd8a1e27724f1b171af3ca1503c304bf11c59a7fe861",
        "7688a23bb369b867ca503635e94c625981671c1e01adf621da6c59d2d07d5114",
        "5f7454880e8a04fa0499ca3f0a3002ca5b7241b15119552965101b4a43c6c0cb",
        "322f93bf23a7b8ccd421cfeeb68129e66dccfc363a40b2d2917aa0e9ef30848f",
        "c05b8045c9a51ed915db41df44195068c3d8ee1431f93104b670695decac8b02",
    }
)
#: SHA-256 of setuptools' module for an editable install (65 to 84), with its three settings
#: removed.
_FINDERS = frozenset(
    {
        "4a95e26097df28cf17ca22cd9df25c3e85f024e23c3b91eb0c9c369f2de0e2be",
        "567e9653639bc9567be9a95d33db89bac27d1621d9d42c70a644bf5c0a724873",
        "73c2612efdd3b493e3fde9247592f68b80bf26d21f160a8a86ba710c4f5b44ce",
        "a2201fce545214c54c9414e399964a09a18203223a6c8b6c5ceb2b1a16fcba83",
    }
)
_SETTING = re.compile(r"^(MAPPING|NAMESPACES|PATH_PLACEHOLDER)(?:: [\w\[\], ]+)? = (.*)$", re.MULTILINE)
_HOOK = re.compile(r"'[\w.+-]+' \+ \"\.__path_hook__\"")
#: sitecustomize of Ubuntu and Debian.
_APPORT = """\
# install the apport exception handler if available
try:
    import apport_python_hook
except ImportError:
    pass
else:
    apport_python_hook.install()
"""


def known_line(line: str) -> KnownLine | None:
    """Return the effects of a ``.pth`` file's code line; None if the line isn't known."""
    line = line.rstrip()
    if line in _LINES:
        return _LINES[line]
    thin = _THIN.fullmatch(line)
    if thin:
        return KnownLine((thin[1],))
    editable = _EDITABLE.fullmatch(line)
    if editable:
        return KnownLine((editable[1],))
    if _NAMESPACE.fullmatch(line):
        named = re.findall(r"'([\w.]+)', ?(?:importlib\.util\.module|types\.ModuleType)", line)
        return KnownLine(claims=tuple(dict.fromkeys(named)))
    return None


def known_module(source: bytes) -> KnownLine | None:
    """Return the effects of importing a start-up module; None if the module's content isn't known."""
    if hashlib.sha256(source).hexdigest() in _MODULES or _is_empty(source):
        return KnownLine()
    if source.decode("latin-1") == _APPORT:
        return KnownLine(("apport_python_hook",))
    settings: dict[str, str] = {}

    def blank(match: re.Match[str]) -> str:
        settings[match[1]] = match[2]
        return match[1]

    template = _SETTING.sub(blank, source.decode("utf-8", "replace"))
    if hashlib.sha256(template.encode()).hexdigest() not in _FINDERS or len(settings) != 3:
        return None
    try:
        mapping = ast.literal_eval(settings["MAPPING"])
        namespaces = ast.literal_eval(settings["NAMESPACES"])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not (_is_table(mapping) and _is_table(namespaces)):
        return None
    if not _HOOK.fullmatch(settings["PATH_PLACEHOLDER"]):
        return None
    return KnownLine(claims=(*mapping, *namespaces))


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_empty(source: bytes) -> bool:
    """Return whether a module contains only comments and white space."""
    try:
        text = source.decode("ascii")
    except UnicodeDecodeError:
        return False
    if "coding" in text:
        return False  # in an encoding such as UTF-7, a comment may contain a line end
    return all(not line.strip() or line.startswith("#") for line in text.splitlines())
