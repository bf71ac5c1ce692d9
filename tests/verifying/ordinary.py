"""Environments and images as people make them, in which the patched build is what runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pytest

from verifying.bases import VENV, add_venv, compile_all
from verifying.images import layer_of, member
from verifying.project import Built, extension
from verifying.rootfs import HANG, VERSION, Environment, copy_python, link_tree
from verifying.tampering import SUFFIX, Change, make_wheel
from verifying.verbs import Verb

#: Debian's own Python, whose library looks for packages in places of its own.
DEBIAN = Path(f"/usr/lib/python{VERSION}")
COVERAGE = (
    'import sys; exec(\'import os\\n\\nif os.getenv("COVERAGE_PROCESS_START") or os.getenv("COVERAGE_PROCESS_CONFIG"):'
    '\\n try:\\n  import coverage\\n except:\\n  pass\\n else:\\n  coverage.process_startup(slug="pth")\')\n'
)
#: Of pytest-cov 2.5 to 6.2.
PYTEST_COV = r"""import os, sys;exec('if \'COV_CORE_SOURCE\' in os.environ:\n try:\n  from pytest_cov.embed import init\n  init()\n except Exception as exc:\n  sys.stderr.write(\n   "pytest-cov: Failed to setup subprocess coverage. "\n   "Environ: {0!r} "\n   "Exception: {1!r}\\n".format(\n    dict((k, v) for k, v in os.environ.items() if k.startswith(\'COV_CORE\')),\n    exc\n   )\n  )\n')
"""
NAMESPACE = (
    "import sys, types, os;has_mfs = sys.version_info > (3, 5);"
    "p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('zope',));"
    "importlib = has_mfs and __import__('importlib.util');has_mfs and __import__('importlib.machinery');"
    "m = has_mfs and sys.modules.setdefault('zope', importlib.util.module_from_spec("
    "importlib.machinery.PathFinder.find_spec('zope', [os.path.dirname(p)])));"
    "m = m or sys.modules.setdefault('zope', types.ModuleType('zope'));"
    "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)\n"
)


@dataclass(frozen=True, kw_only=True)
class Ordinary:
    """A change of a base after which all is still well."""

    name: str
    change: Change
    base: str
    verbs: Sequence[Verb]


ORDINARY: list[Ordinary] = []


def ordinary(
    base: str = "served", verbs: Sequence[Verb] = (Verb.FOLDER, Verb.LAYOUT, Verb.INSTALLED)
) -> Callable[[Change], Change]:
    """Register an environment under its function's name."""

    def register(change: Change) -> Change:
        ORDINARY.append(Ordinary(name=change.__name__, change=change, base=base, verbs=verbs))
        return change

    return register


def command(*arguments: str | Path, environment: Environment, cwd: Path | None = None, **variables: str) -> None:
    """Run a program of this Python's environment."""
    env = {**environment.environ(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        list(map(str, arguments)), env=env, cwd=cwd, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def install(environment: Environment, name: str, files: dict[str, str | bytes], entry_points: str = "") -> None:
    """Install another distribution by pip."""
    environment.pip(make_wheel(environment.root.parent / "wheels", name, files, entry_points))


# Ways to make an environment.


@ordinary(verbs=(Verb.FOLDER, Verb.LAYOUT, Verb.ARCHIVE, Verb.COMPRESSED, Verb.DOCKER, Verb.INSTALLED))
def image_of_compose(environment: Environment, built: Built) -> None:
    """As `compose` writes it."""


@ordinary(base="bare")
def venv(environment: Environment, built: Built) -> None:
    """Compiled by pip itself."""
    add_venv(environment)
    environment.pip(*built.wheels.values())


@ordinary(base="bare")
def venv_of_copies(environment: Environment, built: Built) -> None:
    add_venv(environment, "--copies")
    environment.pip(*built.wheels.values())


@ordinary()
def venv_with_pip(environment: Environment, built: Built) -> None:
    environment.add_distribution("pip")


@ordinary(base="bare")
def virtualenv(environment: Environment, built: Built) -> None:
    """With its `_virtualenv.pth`, which virtualenv wrote for each Python before its release 21."""
    python = environment.path(environment.python)
    data = environment.root.parent / "virtualenv"
    command(
        sys.executable, "-m", "virtualenv", "--no-seed", "-p", python, environment.path(VENV),
        environment=environment, VIRTUALENV_OVERRIDE_APP_DATA=str(data),
    )  # fmt: skip
    environment.python, environment.site = f"{VENV}/bin/python", f"{VENV}/lib/python{VERSION}/site-packages"
    environment.pip(*built.wheels.values())
    if not (environment.packages / "_virtualenv.pth").is_file():
        guard = files("virtualenv.create.via_global_ref").joinpath("_virtualenv.py").read_bytes()
        environment.write("_virtualenv.pth", "import _virtualenv")
        environment.write("_virtualenv.py", guard)


@ordinary(base="bare")
def uv_venv(environment: Environment, built: Built) -> None:
    """Made and filled by uv."""
    python = environment.path(environment.python)
    cache = {"UV_CACHE_DIR": str(environment.root.parent / "uv"), "UV_LINK_MODE": "copy"}
    command(
        "uv",
        "venv",
        "-q",
        "--offline",
        "--no-config",
        "--python",
        python,
        environment.path(VENV),
        environment=environment,
        **cache,
    )
    environment.python, environment.site = f"{VENV}/bin/python", f"{VENV}/lib/python{VERSION}/site-packages"
    inside = environment.path(environment.python)
    command(
        "uv", "pip", "install", "-q", "--offline", "--no-config", "--no-index", "--no-deps", "--python", inside,
        *built.wheels.values(), environment=environment, **cache,
    )  # fmt: skip


@ordinary(base="bare")
def venv_with_system_site_packages(environment: Environment, built: Built) -> None:
    environment.add_distribution("requests")
    environment.add_distribution("packaging")
    add_venv(environment, "--system-site-packages")
    environment.pip(*built.wheels.values())


@ordinary(base="local")
def venv_over_system_site_packages(environment: Environment, built: Built) -> None:
    """The wheels are in the system's own, the interpreter is the virtual environment's."""
    site = environment.site
    add_venv(environment, "--system-site-packages")
    environment.site = site


@ordinary(base="local")
def system_python(environment: Environment, built: Built) -> None:
    """As the images named `python` have it."""


@ordinary(base="bare")
def user_install(environment: Environment, built: Built) -> None:
    environment.pip("--user", *built.wheels.values())
    environment.site = f"/root/.local/lib/python{VERSION}/site-packages"


@ordinary(base="bare", verbs=(Verb.LAYOUT, Verb.INSTALLED))
def user_install_of_another_user(environment: Environment, built: Built) -> None:
    environment.user = "serve"
    environment.pip("--user", *built.wheels.values())
    environment.site = f"/home/serve/.local/lib/python{VERSION}/site-packages"


@ordinary(base="bare", verbs=(Verb.LAYOUT, Verb.INSTALLED))
def target_folder(environment: Environment, built: Built) -> None:
    environment.pip("--target", environment.path("/opt/packages"), *built.wheels.values())
    environment.site, environment.variables["PYTHONPATH"] = "/opt/packages", "/opt/packages"


@ordinary(base="bare", verbs=(Verb.LAYOUT, Verb.INSTALLED))
def prefix_folder(environment: Environment, built: Built) -> None:
    environment.pip("--prefix", environment.path("/opt/prefix"), *built.wheels.values())
    environment.site = f"/opt/prefix/lib/python{VERSION}/site-packages"
    environment.variables["PYTHONPATH"] = environment.site


def _other_place(environment: Environment, built: Built, prefix: str) -> None:
    """Move the Python to another prefix and install the wheels there."""
    environment.path(prefix).parent.mkdir(parents=True, exist_ok=True)
    environment.path("/usr/local").rename(environment.path(prefix))
    environment.path("/usr/local/bin").mkdir(parents=True)
    environment.python, environment.site = f"{prefix}/bin/python3", f"{prefix}/lib/python{VERSION}/site-packages"
    environment.variables["PATH"] = f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    environment.pip(*built.wheels.values())


@ordinary(base="bare")
def conda(environment: Environment, built: Built) -> None:
    _other_place(environment, built, "/opt/conda")
    for name in ("python", "openssl"):
        environment.write(f"/opt/conda/conda-meta/{name}-1.0-0.json", json.dumps({"name": name, "files": []}))
    environment.write("/opt/conda/etc/profile.d/conda.sh", "export CONDA_EXE='/opt/conda/bin/conda'\n")
    environment.variables |= {"CONDA_PREFIX": "/opt/conda", "CONDA_DEFAULT_ENV": "base"}


@ordinary(base="bare")
def pyenv(environment: Environment, built: Built) -> None:
    release = ".".join(map(str, sys.version_info[:3]))
    _other_place(environment, built, f"/root/.pyenv/versions/{release}")
    environment.write("/root/.pyenv/version", f"{release}\n")
    environment.write(
        "/root/.pyenv/shims/python3", '#!/usr/bin/env bash\nexec "/root/.pyenv/bin/pyenv" exec "${0##*/}" "$@"\n', 0o755
    )
    environment.variables |= {"PYENV_ROOT": "/root/.pyenv"}


@ordinary(base="bare")
def debian(environment: Environment, built: Built) -> None:
    """Debian's Python, its `dist-packages`, and its link from `sitecustomize.py` into `/etc`."""
    if not DEBIAN.is_dir() or not os.access(f"/usr/bin/python{VERSION}", os.X_OK):
        pytest.skip("needs Debian's Python of this version")
    shutil.rmtree(environment.path("/usr/local"))
    copy_python(environment.root, "usr", DEBIAN)
    library = environment.path(f"/usr/lib/python{VERSION}")
    if (library / "sitecustomize.py").exists():
        text = (library / "sitecustomize.py").read_text()
        environment.write(f"/etc/python{VERSION}/sitecustomize.py", text)
        (library / "sitecustomize.py").unlink()
        (library / "sitecustomize.py").symlink_to(f"../../../etc/python{VERSION}/sitecustomize.py")
    packages = environment.path("/usr/lib/python3/dist-packages")
    packages.mkdir(parents=True)
    (packages / "six.py").write_text("PY3 = True\n")
    (packages / "six-1.16.0.egg-info").mkdir()
    (packages / "six-1.16.0.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n")
    environment.python = "/usr/bin/python3"
    environment.site = f"/usr/local/lib/python{VERSION}/dist-packages"
    environment.variables["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    environment.pip("--break-system-packages", *built.wheels.values())
    assert (environment.packages / "lib").is_dir()


@ordinary()
def environment_behind_a_link(environment: Environment, built: Built) -> None:
    environment.path("/opt/current").symlink_to("venv")
    environment.python = "/opt/current/bin/python"
    environment.variables["PATH"] = "/opt/current/bin:/usr/local/bin:/usr/bin:/bin"


@ordinary()
def wheels_installed_twice(environment: Environment, built: Built) -> None:
    environment.pip("--force-reinstall", *built.wheels.values())


@ordinary()
def upstream_replaced(environment: Environment, built: Built) -> None:
    """Upstream's wheel was there first."""
    environment.pip("--force-reinstall", *built.upstream.values())
    environment.pip("--force-reinstall", *built.wheels.values())


# What else is installed.


@ordinary()
def setuptools(environment: Environment, built: Built) -> None:
    """With its `distutils-precedence.pth`."""
    environment.add_distribution("setuptools")
    assert (environment.packages / "distutils-precedence.pth").is_file()


@ordinary()
def coverage(environment: Environment, built: Built) -> None:
    """With the lines that measure subprocesses."""
    install(
        environment,
        "coverage",
        {"a1_coverage.pth": COVERAGE, "coverage/__init__.py": "def process_startup(slug):\n    pass\n"},
    )
    contents: dict[str, str | bytes] = {
        "pytest-cov.pth": PYTEST_COV, "pytest_cov/__init__.py": '"""Coverage."""\n',
        "pytest_cov/embed.py": "def init():\n    pass\n",
    }  # fmt: skip
    install(environment, "pytest_cov", contents)


@ordinary()
def namespace_packages(environment: Environment, built: Built) -> None:
    """With the line that setuptools wrote for namespace packages."""
    contents: dict[str, str | bytes] = {"zope.interface-1.0-nspkg.pth": NAMESPACE, "zope/interface/__init__.py": ""}
    install(environment, "zope.interface", contents)


@ordinary()
def editable_with_a_folder(environment: Environment, built: Built) -> None:
    """Another project's editable install, by a path."""
    environment.write("/srv/tools/tools.py", "x = 1\n")
    environment.write("__editable__.tools-1.0.pth", f"{environment.path('/srv/tools')}\n")
    _editable(environment, ["__editable__.tools-1.0.pth"])


@ordinary()
def editable_of_hatch(environment: Environment, built: Built) -> None:
    environment.write("/srv/tools/src/tools.py", "x = 1\n")
    environment.write("_tools.pth", str(environment.path("/srv/tools/src")))
    _editable(environment, ["_tools.pth"])


@ordinary()
def editable_with_a_finder(environment: Environment, built: Built) -> None:
    """As setuptools itself makes it."""
    environment.add_distribution("setuptools")
    for path, text in (
        ("pyproject.toml", '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
         '[project]\nname = "tools"\nversion = "1.0"\n[tool.setuptools]\npackages = ["tools"]\npackage-dir = {tools = "src"}\n'),
        ("src/__init__.py", "x = 1\n"),
    ):  # fmt: skip
        environment.write(f"/srv/tools/{path}", text)
    environment.pip("--no-build-isolation", "--editable", environment.path("/srv/tools"))
    assert list(environment.packages.glob("__editable___tools*_finder.py"))


def _editable(environment: Environment, files: list[str]) -> None:
    from verifying.rootfs import record_row, rows_text

    info = "tools-1.0.dist-info"
    environment.write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tools\nVersion: 1.0\n")
    environment.write(f"{info}/INSTALLER", "pip\n")
    place = environment.path("/srv/tools")
    environment.write(f"{info}/direct_url.json", json.dumps({"url": f"file://{place}", "dir_info": {"editable": True}}))
    names = [*files, f"{info}/METADATA", f"{info}/INSTALLER", f"{info}/direct_url.json"]
    rows = [record_row(name, (environment.packages / name).read_bytes()) for name in names]
    environment.write(f"{info}/RECORD", rows_text([*rows, [f"{info}/RECORD", "", ""]]))


@ordinary()
def many_distributions(environment: Environment, built: Built) -> None:
    """With native libraries, scripts, data and tests of their own."""
    for name in ("numpy", "requests", "urllib3", "certifi", "idna", "packaging", "click", "pyyaml", "jinja2", "psutil"):
        try:
            environment.add_distribution(name)
        except ModuleNotFoundError:
            assert name not in ("requests", "click", "packaging"), "patchq needs it itself"


@ordinary()
def data_files_of_a_distribution(environment: Environment, built: Built) -> None:
    data = "extras-1.0.data/data"
    install(environment, "extras", {
        "extras/__init__.py": "", f"{data}/share/man/man1/extras.1": ".TH\n", f"{data}/etc/jupyter/extras.json": "{}",
        "extras-1.0.data/scripts/extras": "#!python\nprint(1)\n",
    }, "[console_scripts]\nextras-run = extras:main\n[pytest11]\nextras = extras\n")  # fmt: skip


@ordinary()
def extensions_of_a_distribution(environment: Environment, built: Built) -> None:
    install(environment, "fast", {f"_queue_fast/_queue{SUFFIX}": extension("_queue"), "_queue_fast/__init__.py": ""})


@ordinary()
def distribution_without_a_record(environment: Environment, built: Built) -> None:
    """As distutils and Debian's packages leave them."""
    environment.write("older/__init__.py", "")
    environment.write("older-1.0.egg-info/PKG-INFO", "Metadata-Version: 1.1\nName: older\nVersion: 1.0\n")


@ordinary()
def pth_file_of_comments(environment: Environment, built: Built) -> None:
    environment.write("notes.pth", "# Nothing here.\n\n   \n#import sys\n")


# Caches.


@ordinary()
def caches_by_time(environment: Environment, built: Built) -> None:
    compile_all(environment, "-f", "--invalidation-mode", "timestamp")


@ordinary()
def caches_by_hash(environment: Environment, built: Built) -> None:
    compile_all(environment, "-f", "--invalidation-mode", "checked-hash")


@ordinary()
def caches_of_all_levels(environment: Environment, built: Built) -> None:
    compile_all(environment, "-f", "-o", "0", "-o", "1", "-o", "2")


@ordinary()
def no_caches(environment: Environment, built: Built) -> None:
    for folder in environment.packages.rglob("__pycache__"):
        shutil.rmtree(folder)


@ordinary()
def caches_of_another_source(environment: Environment, built: Built) -> None:
    """The files were copied later: their times are others, and Python compiles anew."""
    for path in (environment.packages / "lib").glob("*.py"):
        environment.write(path.relative_to(environment.packages), path.read_bytes())


@ordinary()
def caches_after_runs(environment: Environment, built: Built) -> None:
    """Written by the interpreter itself, for the standard library too."""
    for options in ((), ("-O",)):
        environment.variables["PYTHONDONTWRITEBYTECODE"] = ""
        done = environment.run(
            *options, "-c", "import lib.plugins, app.table, http.client, decimal; lib.plugins.load()"
        )
        assert done.returncode == 0, done.stderr
    del environment.variables["PYTHONDONTWRITEBYTECODE"]


# Variables, accounts, folders.


@ordinary(verbs=(Verb.LAYOUT, Verb.INSTALLED))
def variables_of_python(environment: Environment, built: Built) -> None:
    environment.variables |= {
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "PYTHONFAULTHANDLER": "1",
        "PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1", "PYTHONNOUSERSITE": "1", "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive", "VIRTUAL_ENV": "/opt/venv", "PYTHON_VERSION": "3.12.1", "GPG_KEY": "A0",
        "PYTHONWARNINGS": "ignore::DeprecationWarning", "OMP_NUM_THREADS": "1", "HF_HOME": "/root/.cache/huggingface",
    }  # fmt: skip


CUDA = {
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64",
    "LIBRARY_PATH": "/usr/local/cuda/lib64/stubs", "CUDA_HOME": "/usr/local/cuda", "CUDA_VERSION": "13.0.1",
    "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility", "NVARCH": "x86_64",
    "NVIDIA_REQUIRE_CUDA": "cuda>=13.0", "NV_CUDA_LIB_VERSION": "13.0.1-1",
}  # fmt: skip


@ordinary(verbs=(Verb.LAYOUT, Verb.INSTALLED))
def variables_of_cuda(environment: Environment, built: Built) -> None:
    """Whose folders aren't there."""
    environment.variables |= CUDA
    environment.variables["PATH"] = f"{VENV}/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"


@ordinary()
def libraries_of_cuda(environment: Environment, built: Built) -> None:
    """Their folders, with what CUDA's images have in them."""
    variables_of_cuda(environment, built)
    folder = "/usr/local/cuda-13.0/targets/x86_64-linux/lib"
    for name in ("libcudart.so.13.0.1", "libnvrtc.so.13.0.1", "libcublas.so.13.0.1"):
        environment.write(f"{folder}/{name}", extension("_queue"))
        environment.path(f"{folder}/{name.split('.so')[0]}.so.13").symlink_to(name)
        environment.path(f"{folder}/{name.split('.so')[0]}.so").symlink_to(name)
    environment.write(f"{folder}/stubs/libcuda.so", extension("_queue"))
    environment.path("/usr/local/cuda-13.0/lib64").symlink_to("targets/x86_64-linux/lib")
    environment.path("/usr/local/cuda").symlink_to("cuda-13.0")
    environment.write("/usr/local/nvidia/lib64/libcuda.so.580.1", extension("_queue"))
    environment.write("/etc/ld.so.conf.d/nvidia.conf", "/usr/local/nvidia/lib\n/usr/local/nvidia/lib64\n")
    environment.write("/etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/targets/x86_64-linux/lib\n")


@ordinary(verbs=(Verb.LAYOUT, Verb.INSTALLED))
def working_directory_with_files(environment: Environment, built: Built) -> None:
    environment.directory = "/srv/work"
    environment.write("/srv/work/serve.py", "import lib\nprint(lib.answer())\n")
    environment.write("/srv/work/library/__init__.py", "")
    environment.write("/srv/work/lib.txt", "lib\n")
    environment.write("/srv/work/config.json", "{}\n")


@ordinary(verbs=(Verb.LAYOUT,))
def account_without_rights(environment: Environment, built: Built) -> None:
    environment.user, environment.directory = "1000:1000", "/home/serve"


@ordinary(verbs=(Verb.LAYOUT,))
def entry_point_of_nvidia(environment: Environment, built: Built) -> None:
    """As CUDA's images have it: a script that shows notices."""
    text = '#!/bin/bash\nfor file in /opt/nvidia/entrypoint.d/*.sh; do source "$file"; done\nexec "$@"\n'
    environment.write("/opt/nvidia/nvidia_entrypoint.sh", text, 0o755)
    environment.write("/opt/nvidia/entrypoint.d/10-banner.sh", "echo CUDA\n")
    environment.entrypoint = ["/opt/nvidia/nvidia_entrypoint.sh"]


# File systems and layers.


@ordinary()
def several_pythons(environment: Environment, built: Built) -> None:
    """The system's, and one more, without the packages."""
    link_tree(environment.path("/usr/local/lib"), environment.path("/opt/python3.9/lib"))
    link_tree(environment.path("/usr/local/bin"), environment.path("/opt/python3.9/bin"))
    environment.write("/usr/lib/python3/dist-packages/six.py", "PY3 = True\n")
    environment.write("/opt/patchq/lib/python3.12/site-packages/click/__init__.py", "")


@ordinary(verbs=(Verb.LAYOUT, Verb.ARCHIVE, Verb.DOCKER))
def layer_with_whiteouts(environment: Environment, built: Built) -> None:
    environment.layers.append(layer_of([member("var/lib/apt/lists/index", b"x"), member("wheels/lib.whl", b"x")]))
    environment.layers.append(
        layer_of([member("var/lib/apt/lists/.wh..wh..opq"), member(".wh.wheels"), member("etc/.wh.absent")])
    )


@ordinary(verbs=(Verb.LAYOUT, Verb.ARCHIVE, Verb.DOCKER))
def layer_with_hard_links(environment: Environment, built: Built) -> None:
    link = {"type": tarfile.LNKTYPE}
    environment.layers.append(layer_of([
        member("usr/bin/perl", b"\x7fELF"), member("usr/bin/perl5.36", linkname="usr/bin/perl", **link),
        member("opt/uv/cache/core.py", b"x = 1\n"), member("srv/other/core.py", linkname="opt/uv/cache/core.py", **link),
    ]))  # fmt: skip


@ordinary(verbs=(Verb.LAYOUT, Verb.ARCHIVE))
def layer_with_names_of_tools(environment: Environment, built: Built) -> None:
    """Names with `./`, headers with times and owners, a folder with a slash, long names, and a device."""
    header = {"mtime": "1700000000.5", "SCHILY.xattr.user.x": "y"}
    environment.layers.append(layer_of([
        member("./", type=tarfile.DIRTYPE), member("./srv/", type=tarfile.DIRTYPE),
        member("./srv/notes.txt", b"x", pax_headers=header), member(f"srv/{'deep/' * 60}file", b"x"),
        member("srv/zero", type=tarfile.CHRTYPE, devmajor=1, devminor=5), member("srv/caf\u00e9", b"x"),
        member("usr/bin/awk", type=tarfile.SYMTYPE, linkname="/etc/alternatives/awk"),
    ]))  # fmt: skip


@ordinary(verbs=(Verb.LAYOUT,))
def layer_that_compiles(environment: Environment, built: Built) -> None:
    """A later layer that touches folders of the packages, and changes nothing."""
    site = environment.site.lstrip("/")
    data = (environment.packages / "lib/core.py").read_bytes()
    environment.layers.append(
        layer_of([member(f"{site}/", type=tarfile.DIRTYPE, mode=0o755), member(f"{site}/lib/core.py", data)])
    )


@ordinary(verbs=(Verb.LAYOUT,))
def layers_empty(environment: Environment, built: Built) -> None:
    environment.layers += [layer_of([]), layer_of([])]
