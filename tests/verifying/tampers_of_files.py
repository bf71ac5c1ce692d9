"""Tampers of what the wheels installed: modules, caches, libraries, data, metadata, scripts, whole wheels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path

from verifying.project import Built, extension
from verifying.rootfs import Environment
from verifying.tampering import (
    SUFFIX,
    cache_of,
    console_script,
    install_distribution,
    make_wheel,
    native_library,
    other_copy,
    remove_caches,
    tamper,
    unpack_wheel,
    write_cache,
)

OTHER = "def answer():\n    return 13\n"


@tamper()
def module_changed(environment: Environment, built: Built) -> None:
    environment.replace("lib/core.py", "return 42", "return 13")


@tamper()
def module_changed_with_its_row(environment: Environment, built: Built) -> None:
    environment.replace("lib/core.py", "return 42", "return 13")
    environment.record("lib/core.py")


@tamper()
def module_changed_with_its_row_and_the_manifest(environment: Environment, built: Built) -> None:
    environment.replace("lib/core.py", "return 42", "return 13")
    environment.record("lib/core.py")
    manifest = json.loads((environment.packages / "lib/_patchq.json").read_text())
    digest = hashlib.sha256((environment.packages / "lib/core.py").read_bytes()).hexdigest()
    assert "lib/core.py" in manifest["files"]
    manifest["files"]["lib/core.py"] = digest
    environment.write("lib/_patchq.json", json.dumps(manifest))
    environment.record("lib/_patchq.json")


@tamper()
def module_changed_in_its_size_and_time(environment: Environment, built: Built) -> None:
    status = (environment.packages / "lib/core.py").stat()
    path = environment.replace("lib/core.py", "return 42", "return 13")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    remove_caches(environment)


@tamper()
def module_that_no_patch_changes_changed(environment: Environment, built: Built) -> None:
    environment.write("lib/_queue.py", "kind = 'other'\n")


@tamper()
def module_removed(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/_queue.py").unlink()
    remove_caches(environment, "_queue")


@tamper()
def module_removed_with_its_row(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/_queue.py").unlink()
    remove_caches(environment, "_queue")
    environment.forget("lib/_queue.py")


@tamper(claim="`import lib.extra` runs a module that no wheel has")
def module_added(environment: Environment, built: Built) -> None:
    environment.write("lib/extra.py", "x = 1\n")


@tamper(claim="`import lib.extra` runs a module that no wheel has")
def module_added_with_a_row(environment: Environment, built: Built) -> None:
    environment.write("lib/extra.py", "x = 1\n")
    environment.record("lib/extra.py")


@tamper()
def extension_in_front_of_a_module(environment: Environment, built: Built) -> None:
    environment.write(f"lib/_queue{SUFFIX}", extension("_queue"))


@tamper()
def stable_extension_in_front_of_a_module(environment: Environment, built: Built) -> None:
    environment.write("lib/_queue.abi3.so", extension("_queue"))


@tamper()
def folder_in_front_of_a_module(environment: Environment, built: Built) -> None:
    environment.write("lib/core/__init__.py", OTHER)


@tamper()
def extension_in_front_of_a_package(environment: Environment, built: Built) -> None:
    environment.write(f"lib/sub/__init__{SUFFIX}", extension("_queue"))


@tamper()
def path_of_the_package_extended(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/core.py", OTHER)
    text = (environment.packages / "lib/__init__.py").read_text()
    environment.write("lib/__init__.py", f"__path__.insert(0, '{environment.path('/opt/more')}')\n{text}")
    environment.record("lib/__init__.py")


@tamper()
def package_without_its_init(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/__init__.py").unlink()
    remove_caches(environment, "__init__")
    environment.forget("lib/__init__.py")


@tamper()
def native_library_changed(environment: Environment, built: Built) -> None:
    environment.write("lib/libkernels.so", native_library())


@tamper()
def native_library_changed_with_its_row(environment: Environment, built: Built) -> None:
    environment.write("lib/libkernels.so", native_library())
    environment.record("lib/libkernels.so")


@tamper()
def data_file_changed(environment: Environment, built: Built) -> None:
    environment.write("lib/data/table.json", '{"tile": 256}\n')


@tamper()
def data_file_changed_with_its_row(environment: Environment, built: Built) -> None:
    environment.write("lib/data/table.json", '{"tile": 256}\n')
    environment.record("lib/data/table.json")


@tamper()
def package_replaced_by_a_link(environment: Environment, built: Built) -> None:
    other_copy(environment, "/opt/more")
    shutil.rmtree(environment.packages / "lib")
    (environment.packages / "lib").symlink_to("../../../../more/lib")


@tamper()
def module_replaced_by_a_link(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/core.py", OTHER)
    (environment.packages / "lib/core.py").unlink()
    (environment.packages / "lib/core.py").symlink_to("../../../../../more/core.py")


@tamper(claim="an import of the module waits forever")
def module_replaced_by_a_pipe(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/core.py").unlink()
    remove_caches(environment)
    os.mkfifo(environment.packages / "lib/core.py")


@tamper()
def module_replaced_by_a_folder(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/_queue.py").unlink()
    remove_caches(environment, "_queue")
    (environment.packages / "lib/_queue.py").mkdir()


# Compiled caches.


@tamper()
def cache_without_source(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/core.py").unlink()
    write_cache(environment, environment.packages / "lib/core.pyc", OTHER, None)


@tamper()
def cache_without_source_with_its_row(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/core.py").unlink()
    environment.forget("lib/core.py")
    write_cache(environment, environment.packages / "lib/core.pyc", OTHER, None)
    environment.record("lib/core.pyc")


@tamper()
def cache_that_nothing_checks(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source), OTHER, source, flags=1)


@tamper()
def cache_with_the_time_of_its_source(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source), OTHER, source)


@tamper()
def cache_with_the_hash_of_its_source(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source), OTHER, source, flags=3)


@tamper()
def cache_with_a_row(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source), OTHER, source)
    environment.record(str(cache_of(source).relative_to(environment.packages)))


@tamper(shows=lambda environment: environment.run("-O", "-c", "import lib; print(lib.answer())").stdout)
def cache_for_optimized_runs(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source, "1"), OTHER, source)


@tamper()
def cache_that_only_changes_a_constant_of_the_same_name(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    text = source.read_text().replace("42", "13")
    write_cache(environment, cache_of(source), text, source)


@tamper()
def cache_cut_short(environment: Environment, built: Built) -> None:
    source = environment.packages / "lib/core.py"
    write_cache(environment, cache_of(source), OTHER, source)
    path = cache_of(source)
    environment.write(path.relative_to(environment.packages), path.read_bytes()[:40])


# Metadata, scripts, whole wheels.


@tamper(claim="two metadata folders of one distribution, one of them of nobody's wheel")
def metadata_twice(environment: Environment, built: Built) -> None:
    info = environment.info()
    for path in info.iterdir():
        if path.is_file():
            environment.write(
                f"lib-0.9.dist-info/{path.name}", path.read_bytes().replace(b"Version: 1.0", b"Version: 0.9")
            )


@tamper()
def metadata_of_another_version(environment: Environment, built: Built) -> None:
    info = environment.info()
    environment.replace(f"{info.name}/METADATA", "Version: 1.0+", "Version: 2.0+")
    environment.record(f"{info.name}/METADATA")


@tamper(claim="nothing says any more what was installed")
def record_removed(environment: Environment, built: Built) -> None:
    (environment.info() / "RECORD").unlink()


@tamper(claim="RECORD has no hash of a module, so pip would not notice its change")
def record_without_a_hash(environment: Environment, built: Built) -> None:
    record = environment.info() / "RECORD"
    lines = record.read_text().splitlines(keepends=True)
    lines = ["lib/core.py,,\n" if line.startswith("lib/core.py,") else line for line in lines]
    environment.write(record.relative_to(environment.packages), "".join(lines))


@tamper(claim="the manifest names a patch that the wheel was not built with")
def manifest_changed(environment: Environment, built: Built) -> None:
    manifest = (environment.packages / "lib/_patchq.json").read_text()
    assert "answer" in manifest
    environment.write("lib/_patchq.json", manifest.replace('"answer"', '"security-fix"'))
    environment.record("lib/_patchq.json")


@tamper(claim="nothing in the package says which patches it has")
def manifest_removed(environment: Environment, built: Built) -> None:
    (environment.packages / "lib/_patchq.json").unlink()
    environment.forget("lib/_patchq.json")


@tamper()
def plugin_added_to_the_entry_points(environment: Environment, built: Built) -> None:
    points = environment.info() / "entry_points.txt"
    name = str(points.relative_to(environment.packages))
    environment.write(name, points.read_text().replace("own = ", "more = lib.core:answer\nown = "))
    environment.record(name)


@tamper()
def plugin_of_a_third_party(environment: Environment, built: Built) -> None:
    files = {"intruder.py": "def register():\n    return 'intruder'\n"}
    install_distribution(environment, "intruder", dict(files), "[lib.plugins]\nintruder = intruder:register\n")


@tamper()
def module_replaced_by_a_third_party(environment: Environment, built: Built) -> None:
    install_distribution(environment, "intruder", {"lib/core.py": OTHER})


@tamper(claim="`import lib.extra` runs a module that the package's wheel has not")
def module_added_by_a_third_party(environment: Environment, built: Built) -> None:
    install_distribution(environment, "intruder", {"lib/extra.py": "x = 1\n"})


def _changed_script(environment: Environment) -> str:
    script = (environment.path(environment.python).parent / "lib").read_text()
    return script.replace("from lib.command import main", "main = lambda: print(13)")


@tamper(shows=console_script)
def console_script_changed(environment: Environment, built: Built) -> None:
    environment.write("/opt/venv/bin/lib", _changed_script(environment), 0o755)


@tamper(shows=console_script)
def console_script_changed_with_its_row(environment: Environment, built: Built) -> None:
    environment.write("/opt/venv/bin/lib", _changed_script(environment), 0o755)
    environment.record("../../../bin/lib")


@tamper(shows=console_script)
def console_script_of_another_interpreter(environment: Environment, built: Built) -> None:
    environment.write("/opt/more/python", "#!/bin/sh\necho other\n", 0o755)
    script = (environment.path(environment.python).parent / "lib").read_text().split("\n", 1)[1]
    environment.write("/opt/venv/bin/lib", f"#!{environment.path('/opt/more/python')}\n{script}", 0o755)
    environment.record("../../../bin/lib")


@tamper()
def upstream_installed_over_it(environment: Environment, built: Built) -> None:
    environment.pip("--force-reinstall", built.upstream["lib"])


@tamper()
def upstream_unpacked_over_it(environment: Environment, built: Built) -> None:
    unpack_wheel(environment, built.upstream["lib"], environment.site, "lib/")


@tamper()
def upstream_instead_of_one_package(environment: Environment, built: Built) -> None:
    environment.pip("--force-reinstall", built.upstream["app"])


@tamper()
def another_stack(environment: Environment, built: Built) -> None:
    environment.pip("--force-reinstall", *built.other.values())


@tamper()
def one_package_of_another_stack(environment: Environment, built: Built) -> None:
    environment.pip("--force-reinstall", built.other["app"])


@tamper()
def package_missing(environment: Environment, built: Built) -> None:
    shutil.rmtree(environment.info("app"))
    shutil.rmtree(environment.packages / "app")


@tamper()
def upstream_named_as_patched(environment: Environment, built: Built) -> None:
    """Upstream's files, with the patched build's name, version and manifest, and a RECORD that fits."""
    unpack_wheel(environment, built.upstream["lib"], environment.site, "lib/")
    for path in (environment.packages / "lib").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            environment.record(str(path.relative_to(environment.packages)))
    remove_caches(environment, "*")


@tamper()
def wheel_of_the_same_name_installed(environment: Environment, built: Built) -> None:
    """A wheel with the patched build's file name, made of other files, installed by pip."""
    folder = environment.root.parent / "same"
    wheel = make_wheel(folder, "lib", {"lib/__init__.py": OTHER, "lib/core.py": OTHER})
    environment.pip("--force-reinstall", wheel)
    manifest = json.dumps(json.loads(_member(built.wheels["lib"], "lib/_patchq.json")))
    environment.write("lib/_patchq.json", manifest)
    environment.record("lib/_patchq.json")


def _member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)
