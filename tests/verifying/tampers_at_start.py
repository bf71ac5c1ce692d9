"""Tampers of what an interpreter runs and where it looks before it imports the package: start, path, variables."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from verifying.project import Built, extension
from verifying.rootfs import HANG, VERSION, Environment, link_tree, record_row, rows_text
from verifying.tampering import (
    ARCHIVE,
    STDLIB,
    SUFFIX,
    cache_of,
    install_distribution,
    mark,
    other_copy,
    ran_by_shell,
    tamper,
    unpack_wheel,
    write_cache,
)
from verifying.verbs import CONFIGURED, FILES, Verb

#: Where ``site`` of Python 3.13 ends a line, and older ones don't.
SPLITS_LATER = "" if sys.version_info >= (3, 13) else "from Python 3.13 on, `site` begins a line here and executes it"


def _insert(folder: str) -> str:
    return f"import sys; sys.path.insert(0, {folder!r})\n"


# .pth files.


@tamper()
def pth_file(environment: Environment, built: Built) -> None:
    environment.write("more.pth", mark())


@tamper()
def pth_file_that_puts_a_folder_in_front(environment: Environment, built: Built) -> None:
    folder = other_copy(environment, "/opt/more")
    environment.write("more.pth", _insert(str(environment.path(folder))))


@tamper()
def pth_line_after_a_tab(environment: Environment, built: Built) -> None:
    environment.write("more.pth", mark().replace("import ", "import\t"))


@tamper()
def pth_line_after_many(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\n\n" * 20_000 + mark())


@tamper()
def pth_line_after_a_carriage_return(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\r" + mark())


@tamper()
def pth_line_after_a_zero_byte(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\0\n" + mark())


@tamper()
def pth_line_without_an_end(environment: Environment, built: Built) -> None:
    environment.write("more.pth", mark().rstrip())


@tamper(verbs=(Verb.INSTALLED,), claim="the file is back after the check, if what it runs writes it again")
def pth_file_that_removes_itself(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "import os; os.unlink(fullname)\n")


@tamper()
def pth_file_that_is_a_link(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/list.txt", mark())
    (environment.packages / "more.pth").symlink_to("../../../../more/list.txt")


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_form_feed(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\f" + mark())


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_vertical_tab(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\v" + mark())


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_line_separator(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\u2028" + mark())


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_next_line(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\x85" + mark())


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_file_separator(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "# nothing\x1c" + mark())


@tamper(claim=SPLITS_LATER)
def pth_line_after_a_byte_order_mark(environment: Environment, built: Built) -> None:
    environment.write("more.pth", "\ufeff" + mark())


@tamper()
def pth_file_in_a_row_of_the_package(environment: Environment, built: Built) -> None:
    environment.write("more.pth", mark())
    environment.record("more.pth")


@tamper()
def pth_file_of_a_made_up_distribution(environment: Environment, built: Built) -> None:
    _make_up(environment, {"more.pth": mark()})


@tamper()
def pth_file_of_an_installed_distribution(environment: Environment, built: Built) -> None:
    install_distribution(environment, "intruder", {"intruder.pth": mark()})


@tamper()
def finder_of_a_made_up_distribution(environment: Environment, built: Built) -> None:
    folder = str(environment.path(other_copy(environment, "/opt/more")))
    finder = f"""import importlib.machinery
import sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "lib":
            return importlib.machinery.PathFinder.find_spec(name, [{folder!r}])


sys.meta_path.insert(0, Finder)
"""
    _make_up(environment, {"hooks.pth": "import hooks\n", "hooks.py": finder})


@tamper()
def pth_file_adds_a_folder_with_a_sitecustomize(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/sitecustomize.py", mark())
    environment.write("more.pth", f"{environment.path('/opt/more')}\n")


@tamper()
def module_of_setuptools_pth_changed(environment: Environment, built: Built) -> None:
    environment.add_distribution("setuptools")
    environment.replace("_distutils_hack/__init__.py", "import sys\n", mark())


@tamper()
def module_of_setuptools_pth_changed_with_its_row(environment: Environment, built: Built) -> None:
    module_of_setuptools_pth_changed(environment, built)
    environment.record("_distutils_hack/__init__.py", "setuptools")


@tamper()
def module_of_setuptools_pth_alone(environment: Environment, built: Built) -> None:
    """The known line, with nothing of setuptools: the module is somebody's own."""
    line = "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
    environment.write("distutils-precedence.pth", f"{line}enabled and __import__('_distutils_hack').add_shim(); \n")
    environment.write("_distutils_hack/__init__.py", f"{mark()}\ndef add_shim():\n    pass\n")


@tamper()
def cache_of_setuptools_pth_forged(environment: Environment, built: Built) -> None:
    environment.add_distribution("setuptools")
    source = environment.packages / "_distutils_hack/__init__.py"
    write_cache(environment, cache_of(source), mark() + "def add_shim():\n    pass\n", source)


@tamper()
def module_of_virtualenv_pth_changed(environment: Environment, built: Built) -> None:
    environment.write("_virtualenv.pth", "import _virtualenv")
    environment.write(
        "_virtualenv.py", '"""Patches that are applied at runtime to the virtual environment."""\n' + mark()
    )


@tamper()
def finder_of_an_editable_install_changed(environment: Environment, built: Built) -> None:
    """Another project's editable install, whose finder takes the package, too."""
    folder = str(environment.path(other_copy(environment, "/srv/project")))
    name = "__editable___tools_1_0_finder"
    finder = f"""import sys
from importlib.machinery import PathFinder

MAPPING = {{'tools': '/srv/project/tools', 'lib': {folder!r} + '/lib'}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            return PathFinder.find_spec(fullname, [MAPPING[fullname].rpartition('/')[0]])
        return None


def install():
    sys.meta_path.insert(0, _EditableFinder)
"""
    line = f"import {name}; {name}.install()"
    _make_up(environment, {"__editable__.tools-1.0.pth": line, f"{name}.py": finder}, "tools")


@tamper()
def pth_file_of_a_namespace_takes_the_package(environment: Environment, built: Built) -> None:
    """The line that setuptools wrote for namespace packages, for a package that is none."""
    line = (
        "import sys, types, os;has_mfs = sys.version_info > (3, 5);"
        "p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('lib',));"
        "importlib = has_mfs and __import__('importlib.util');has_mfs and __import__('importlib.machinery');"
        "m = has_mfs and sys.modules.setdefault('lib', importlib.util.module_from_spec("
        "importlib.machinery.PathFinder.find_spec('lib', [os.path.dirname(p)])));"
        "m = m or sys.modules.setdefault('lib', types.ModuleType('lib'));"
        "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)\n"
    )
    _make_up(environment, {"intruder-nspkg.pth": line})


@tamper()
def egg_in_front(environment: Environment, built: Built) -> None:
    """An egg that easy_install put in front, by the line that it wrote."""
    other_copy(environment, f"{environment.site}/lib-9.0-py{VERSION}.egg")
    environment.write(
        "easy-install.pth",
        "import sys; sys.__plen = len(sys.path)\n"
        f"./lib-9.0-py{VERSION}.egg\n"
        "import sys; new = sys.path[sys.__plen:]; del sys.path[sys.__plen:]; p = getattr(sys, '__egginsert', 0); "
        "sys.path[p:p] = new; sys.__egginsert = p + len(new)\n",
    )


@tamper()
def development_link_in_front(environment: Environment, built: Built) -> None:
    folder = environment.path(other_copy(environment, "/srv/source"))
    environment.write("lib.egg-link", f"{folder}\n.\n")
    environment.write("more.pth", f"import sys; sys.path.insert(0, {str(folder)!r})\n")


def _make_up(environment: Environment, files: dict[str, str], name: str = "intruder") -> None:
    """Write files and a metadata folder that has them, by hand."""
    rows = []
    for file, text in files.items():
        data = environment.write(file, text).read_bytes()
        rows.append(record_row(file, data))
    info = f"{name}-1.0.dist-info"
    environment.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    environment.write(f"{info}/INSTALLER", "pip\n")
    environment.write(f"{info}/RECORD", rows_text([*rows, [f"{info}/RECORD", "", ""]]))


# Modules that ``site`` imports.


@tamper()
def sitecustomize_module(environment: Environment, built: Built) -> None:
    environment.write("sitecustomize.py", mark())


@tamper()
def sitecustomize_package(environment: Environment, built: Built) -> None:
    environment.write("sitecustomize/__init__.py", mark())


@tamper()
def sitecustomize_without_source(environment: Environment, built: Built) -> None:
    write_cache(environment, environment.packages / "sitecustomize.pyc", mark(), None)


@tamper(shows=lambda e: e.run("-c", "import importlib.util as u; print(u.find_spec('sitecustomize'))").stdout)
def sitecustomize_extension(environment: Environment, built: Built) -> None:
    environment.write(f"sitecustomize{SUFFIX}", extension("_queue"))


@tamper()
def sitecustomize_of_a_made_up_distribution(environment: Environment, built: Built) -> None:
    _make_up(environment, {"sitecustomize.py": mark()})


@tamper()
def sitecustomize_in_the_standard_library(environment: Environment, built: Built) -> None:
    environment.write(f"{STDLIB}/sitecustomize.py", mark())


@tamper()
def sitecustomize_in_the_archive(environment: Environment, built: Built) -> None:
    _archive(environment, {"sitecustomize.py": mark()})


@tamper(base="local")
def usercustomize_module(environment: Environment, built: Built) -> None:
    environment.write("usercustomize.py", mark())


@tamper(base="local")
def usercustomize_of_the_user(environment: Environment, built: Built) -> None:
    environment.write(f"/root/.local/lib/python{VERSION}/site-packages/usercustomize.py", mark())


@tamper(base="local")
def pth_file_of_the_user(environment: Environment, built: Built) -> None:
    environment.write(f"/root/.local/lib/python{VERSION}/site-packages/more.pth", mark())


@tamper(base="local")
def upstream_in_the_folder_of_the_user(environment: Environment, built: Built) -> None:
    unpack_wheel(environment, built.upstream["lib"], f"/root/.local/lib/python{VERSION}/site-packages")


# The interpreter and its library.


def _archive(environment: Environment, files: dict[str, str | bytes]) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    environment.write(ARCHIVE, out.getvalue())


@tamper()
def package_in_the_standard_library(environment: Environment, built: Built) -> None:
    other_copy(environment, STDLIB)


@tamper()
def package_beside_the_extensions(environment: Environment, built: Built) -> None:
    other_copy(environment, f"{STDLIB}/lib-dynload")


@tamper()
def package_in_the_archive(environment: Environment, built: Built) -> None:
    folder = environment.packages / "lib"
    files: dict[str, str | bytes] = {
        f"lib/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*.py")
    }
    _archive(environment, {**files, "lib/core.py": "def answer():\n    return 13\n"})


@tamper()
def standard_library_changed(environment: Environment, built: Built) -> None:
    environment.replace(f"{STDLIB}/json/decoder.py", "import re\n", f"import re\n{mark()}")


def _unfrozen(environment: Environment) -> str:
    """Return what a start without the frozen modules runs; in Python 3.10 none of these is frozen."""
    code = "import sys; print(getattr(sys, 'tampered', None))"
    return environment.run("-X", "frozen_modules=off", "-c", code).stdout


@tamper(shows=_unfrozen)
def site_changed(environment: Environment, built: Built) -> None:
    environment.replace(f"{STDLIB}/site.py", "import sys\n", mark())


@tamper()
def encodings_changed(environment: Environment, built: Built) -> None:
    environment.replace(f"{STDLIB}/encodings/__init__.py", "import sys\n", mark())


@tamper()
def importlib_changed(environment: Environment, built: Built) -> None:
    path = f"{STDLIB}/importlib/__init__.py"
    environment.replace(path, "import sys\n", mark())


@tamper()
def cache_of_the_standard_library_forged(environment: Environment, built: Built) -> None:
    source = environment.path(f"{STDLIB}/json/scanner.py")
    write_cache(environment, cache_of(source), source.read_text() + mark(), source)


@tamper()
def cache_of_the_standard_library_unchecked(environment: Environment, built: Built) -> None:
    source = environment.path(f"{STDLIB}/json/scanner.py")
    write_cache(environment, cache_of(source), source.read_text() + mark(), source, flags=1)


@tamper(shows=lambda environment: environment.run("-c", "import csv; print(csv.__file__)").stdout)
def extension_of_the_standard_library_replaced(environment: Environment, built: Built) -> None:
    environment.write(f"{STDLIB}/lib-dynload/_csv{SUFFIX}", extension("_queue"))


@tamper()
def home_is_another_python(environment: Environment, built: Built) -> None:
    """The virtual environment's configuration names a Python whose library is changed."""
    link_tree(environment.path("/usr/local"), environment.path("/opt/python"))
    environment.write(f"/opt/python/lib/python{VERSION}/sitecustomize.py", mark())
    for name in ("python3", "python"):
        link = environment.path(f"/opt/venv/bin/{name}")
        link.unlink()
        link.symlink_to(f"../../python/bin/python{VERSION}")
    environment.write("/opt/venv/pyvenv.cfg", f"home = {environment.path('/opt/python/bin')}\nversion = {VERSION}\n")


@tamper()
def system_site_packages_switched_on(environment: Environment, built: Built) -> None:
    environment.write(f"{STDLIB}/site-packages/more.pth", mark())
    environment.replace("/opt/venv/pyvenv.cfg", "packages = false", "packages = true")


@tamper()
def interpreter_is_a_script(environment: Environment, built: Built) -> None:
    folder = environment.path(other_copy(environment, "/opt/more"))
    real = environment.path(f"/usr/local/bin/python{VERSION}")
    environment.path("/opt/venv/bin/python3").unlink()
    text = f'#!/bin/sh\nPYTHONPATH={folder} exec -a "$0" {real} "$@"\n'.replace("/bin/sh", "/bin/bash")
    environment.write("/opt/venv/bin/python3", text, 0o755)


@tamper()
def interpreter_is_another_one(environment: Environment, built: Built) -> None:
    """The link leads to a second environment, with upstream's wheel."""
    second = _second_environment(environment, built)
    environment.path("/opt/venv/bin/python3").unlink()
    environment.path("/opt/venv/bin/python3").symlink_to(f"../../{second.rsplit('/', 1)[1]}/bin/python3")
    environment.path("/opt/venv/pyvenv.cfg").unlink()
    (environment.path("/opt/venv") / "pyvenv.cfg").symlink_to(f"../{second.rsplit('/', 1)[1]}/pyvenv.cfg")
    link = environment.path(f"/opt/venv/lib/python{VERSION}/site-packages")
    link.rename(link.with_name("kept"))
    link.symlink_to(f"../../../{second.rsplit('/', 1)[1]}/lib/python{VERSION}/site-packages")


def _second_environment(environment: Environment, built: Built, folder: str = "/opt/second") -> str:
    """Make an environment with upstream's wheels; return its folder."""
    python = environment.path("/usr/local/bin/python3")
    command = [str(python), "-m", "venv", "--without-pip", str(environment.path(folder))]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG)
    environment.pip("--no-compile", *built.upstream.values(), python=f"{folder}/bin/python")
    return folder


# Variables.


@tamper(verbs=CONFIGURED)
def variable_pythonpath(environment: Environment, built: Built) -> None:
    environment.variables["PYTHONPATH"] = other_copy(environment, "/opt/more")


@tamper(verbs=CONFIGURED)
def variable_pythonpath_with_a_sitecustomize(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/sitecustomize.py", mark())
    environment.variables["PYTHONPATH"] = "/opt/more"


@tamper(verbs=CONFIGURED)
def variable_pythonpath_into_the_working_directory(environment: Environment, built: Built) -> None:
    other_copy(environment, "/srv")
    environment.directory = "/srv"
    environment.variables["PYTHONPATH"] = "."


@tamper(verbs=CONFIGURED, base="local")
def variable_pythonhome(environment: Environment, built: Built) -> None:
    link_tree(environment.path("/usr/local"), environment.path("/opt/python"))
    environment.write(f"/opt/python/lib/python{VERSION}/sitecustomize.py", mark())
    environment.variables["PYTHONHOME"] = "/opt/python"


@tamper(verbs=CONFIGURED, base="local")
def variable_pythonuserbase(environment: Environment, built: Built) -> None:
    unpack_wheel(environment, built.upstream["lib"], f"/opt/more/lib/python{VERSION}/site-packages")
    environment.variables["PYTHONUSERBASE"] = "/opt/more"


@tamper(verbs=CONFIGURED)
def variable_pythonpycacheprefix(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    # Where the copy looks, and where its container does. With a prefix, the tag alone names the file.
    for place in (str(source.parent), f"{environment.site}/lib"):
        target = environment.path("/opt/caches") / place.lstrip("/") / f"core.{sys.implementation.cache_tag}.pyc"
        write_cache(environment, target, "def answer():\n    return 13\n", source)
    environment.variables["PYTHONPYCACHEPREFIX"] = "/opt/caches"


@tamper(
    verbs=CONFIGURED, shows=lambda e: e.run("-i", text="import sys; print(getattr(sys, 'tampered', None))\n").stdout
)
def variable_pythonstartup(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/start.py", mark())
    environment.variables["PYTHONSTARTUP"] = "/opt/more/start.py"


def _browsed(environment: Environment) -> str:
    """Return whether a start has called the browser."""
    environment.run("-c", "pass")
    called = environment.path("/root/called")
    for _ in range(100 if "BROWSER" in environment.variables else 1):
        if called.exists():
            return "called"
        time.sleep(0.1)
    return "not called"


@tamper(verbs=CONFIGURED, shows=_browsed)
def variable_pythonwarnings(environment: Environment, built: Built) -> None:
    """The module of a warning's category is imported at each start: this one opens a browser, which is a program."""
    environment.write("/opt/more/browser", "#!/bin/sh\ntouch $HOME/called\n", 0o755)
    environment.variables |= {"PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": "/opt/more/browser"}


def _loaded(environment: Environment) -> str:
    code = "print(sorted({l.split()[-1] for l in open('/proc/self/maps') if 'more' in l}))"
    return environment.run("-c", code).stdout


@tamper(verbs=CONFIGURED, shows=_loaded)
def variable_ld_preload(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/libmore.so", extension("_queue"))
    environment.variables["LD_PRELOAD"] = "/opt/more/libmore.so"


@tamper(verbs=CONFIGURED, claim="the dynamic linker loads the library into each process and lets it bind symbols")
def variable_ld_audit(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/libmore.so", extension("_queue"))
    environment.variables["LD_AUDIT"] = "/opt/more/libmore.so"


def _own_libc() -> bytes:
    """Return the C library of this process with something behind its end, so that it still works."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    (path, *_) = [line.split()[-1] for line in lines if re.search(r"/(libc[.-][^/]*so[^/]*|ld-musl[^/]*)$", line)]
    return Path(path).read_bytes() + b"changed"


@tamper(verbs=CONFIGURED, shows=_loaded)
def variable_ld_library_path(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/libc.so.6", _own_libc(), 0o755)
    environment.variables["LD_LIBRARY_PATH"] = "/opt/more"


@tamper(verbs=(Verb.LAYOUT,), shows=lambda environment: ran_by_shell(environment, "bash", "-c", "true"))
def variable_bash_env(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/start.sh", f"echo ran; export PYTHONPATH={other_copy(environment, '/opt/more')}\n")
    environment.variables["BASH_ENV"] = "/opt/more/start.sh"
    environment.command = ["bash", "-c", "lib serve"]


@tamper(verbs=(Verb.LAYOUT,), shows=lambda environment: ran_by_shell(environment, "sh", "-ic", "true"))
def variable_env_of_shells(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/start.sh", f"echo ran; export PYTHONPATH={other_copy(environment, '/opt/more')}\n")
    environment.variables["ENV"] = "/opt/more/start.sh"
    environment.command = ["sh", "-ic", "lib serve"]


@tamper(verbs=(Verb.LAYOUT,), shows=lambda environment: ran_by_shell(environment, "lib"))
def variable_path_with_another_script(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/bin/lib", "#!/bin/sh\necho 13\n", 0o755)
    environment.variables["PATH"] = f"/opt/more/bin:{environment.variables['PATH']}"


@tamper(verbs=FILES, claim="the dynamic linker loads the library into each process")
def preloaded_by_the_system(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/libmore.so", extension("_queue"))
    environment.write("/etc/ld.so.preload", "/opt/more/libmore.so\n")


@tamper(verbs=FILES, claim="the dynamic linker takes the C library and Python's from there")
def libraries_by_the_system(environment: Environment, built: Built) -> None:
    for name in ("libc.so.6", f"libpython{VERSION}.so.1.0"):
        environment.write(f"/opt/more/{name}", extension("_queue"))
    environment.write("/etc/ld.so.conf.d/000-more.conf", "/opt/more\n")


@tamper(claim="pathlib of the standard library imports the module")
def module_of_another_system(environment: Environment, built: Built) -> None:
    environment.write("nt.py", mark())


@tamper(verbs=(Verb.INSTALLED,), claim="the command starts another program than the one that was asked")
def other_interpreter_by_a_second_name(environment: Environment, built: Built) -> None:
    python = environment.path("/opt/venv/bin/python3")
    program = python.resolve()
    data = program.read_bytes()
    for name in ("python", "python3"):
        (python.parent / name).unlink()
    (python.parent / "python").symlink_to(program)
    environment.write("/opt/venv/bin/python3", data + b"\0", 0o755)
    script = environment.path("/opt/venv/bin/lib").read_text()
    environment.write("/opt/venv/bin/lib", f"#!{python}\n" + script.partition("\n")[2], 0o755)
    environment.record("../../../bin/lib")


@tamper(claim="the interpreter takes its extension modules from the folder that the file names")
def build_folder_of_the_interpreter(environment: Environment, built: Built) -> None:
    environment.write("/opt/venv/bin/pybuilddir.txt", "../more")


# Where the container starts, and what.


@tamper(verbs=CONFIGURED)
def package_in_the_working_directory(environment: Environment, built: Built) -> None:
    environment.directory = other_copy(environment, "/srv/source")
    environment.command = ["python", "-m", "lib.command"]


@tamper(verbs=FILES, claim="the image holds upstream's wheels a second time, and a command may run those")
def second_environment_of_upstream(environment: Environment, built: Built) -> None:
    _second_environment(environment, built)


@tamper(verbs=(Verb.LAYOUT,), shows=lambda environment: ran_by_shell(environment, "lib"))
def second_environment_in_front_on_the_path(environment: Environment, built: Built) -> None:
    folder = _second_environment(environment, built)
    environment.variables["PATH"] = f"{folder}/bin:{environment.variables['PATH']}"


@tamper(
    verbs=(Verb.LAYOUT,),
    shows=lambda environment: ran_by_shell(environment, str(environment.path(environment.command[0]) if environment.command[0].startswith("/") else environment.command[0])),
)  # fmt: skip
def command_of_a_second_environment(environment: Environment, built: Built) -> None:
    environment.command = [f"{_second_environment(environment, built)}/bin/lib", "serve"]


@tamper(verbs=(Verb.LAYOUT,), claim="the process is started with another folder in front")
def entry_point_that_sets_a_variable(environment: Environment, built: Built) -> None:
    environment.entrypoint = ["/usr/bin/env", f"PYTHONPATH={other_copy(environment, '/opt/more')}"]


@tamper(verbs=(Verb.LAYOUT,), claim="the process is started with another folder in front")
def entry_point_whose_shell_sets_a_variable(environment: Environment, built: Built) -> None:
    folder = other_copy(environment, "/opt/more")
    environment.entrypoint = ["/bin/sh", "-c", f'export PYTHONPATH="{folder}"; exec "$0" "$@"']


@tamper(verbs=(Verb.LAYOUT,), claim="the process is started with another folder in front")
def entry_point_is_a_script(environment: Environment, built: Built) -> None:
    folder = other_copy(environment, "/opt/more")
    environment.write("/entrypoint.sh", f'#!/bin/sh\nexport PYTHONPATH={folder}\nexec "$@"\n', 0o755)
    environment.entrypoint = ["/entrypoint.sh"]


@tamper(verbs=(Verb.LAYOUT,), claim="the process runs code that the image's configuration holds")
def entry_point_with_code(environment: Environment, built: Built) -> None:
    environment.entrypoint = ["/opt/venv/bin/python", "-c", f"{mark()}import lib.command; lib.command.main()"]
