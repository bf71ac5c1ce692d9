"""Patches of packagers' recipes: each import gives the tree that the packager's tool makes, or a refusal."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kit import Patchq, git
from patchq.cli import cli
from patchq.errors import PatchqError
from patchq.recipes.entries import EntryState
from patchq.recipes.recipe import recipe_entries

ME = ("--author", "me")
THREE = "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@\n line 2\n-line 3\n+line three\n line 4\n"
#: Applies only after THREE.
AGAIN = "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@\n line 2\n-line three\n+line 3 again\n line 4\n"
BARE = "--- a.txt\n+++ a.txt\n@@ -19,3 +19,3 @@\n line 19\n-line 20\n+line twenty\n line 21\n"
MODULE = "--- a/mod.py\n+++ b/mod.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"
NEW = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+new = 1\n"
FILES = {"three.patch": THREE, "again.patch": AGAIN, "bare.patch": BARE, "module.patch": MODULE, "new.patch": NEW}
#: Order that isn't the order of names, as (file, options of patch, folder).
THREE_AGAIN = [("three.patch", "-p1", "."), ("again.patch", "-p1", ".")]


def write(folder: Path, name: str, text: str) -> Path:
    """Write a recipe, with all patches next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, patch in FILES.items():
        (folder / file).write_text(patch)
    (folder / name).write_text(text)
    return folder / name


def native(upstream: Path, folder: Path, steps: list[tuple[str, str, str]], to: Path) -> str:
    """Apply patches with GNU patch to a copy of the upstream. Return the id of the tree."""
    git(upstream, "worktree", "add", "-q", "--detach", str(to), "v1")
    for file, options, where in steps:
        command = ["patch", "-s", "--no-backup-if-mismatch", *options.split(), "-i", str(folder.resolve() / file)]
        subprocess.run(command, cwd=to / where, check=True)
    git(to, "add", "-A")
    return git(to, "write-tree")


def imported(patchq: Patchq, path: Path, *options: str) -> str:
    """Import a recipe. Return the id of the tree."""
    patchq.ok("import", "up", str(path), *ME, *options)
    patchq.ok("apply")
    return git(patchq.tree(), "rev-parse", "HEAD^{tree}")


SPEC = """Name: up
Version: 1
Source0: up-%{version}.tar.gz
%global short three
Patch0: again.patch
Patch1: https://example.org/patches/%{short}.patch
Patch2: bare.patch
#Patch3: new.patch
Patch4: module.patch
Patch5: unused.patch
Patch6: new.patch
%bcond_with extra
%description
%prep
%setup -q
%patch1 -p1
%patch -P 0 -p1 -b .orig
%patch2
# %patch4 -p1
%if 0%{?rhel}
%patch6 -p1
%endif
%if %{with extra}
%patch6 -p1
%endif
pushd pkg
patch -p1 < %{PATCH4}
popd
sed -i 's/a/b/' a.txt
%build
"""
AUTOSETUP = """Name: up
Version: 1
Patch: three.patch
Patch: again.patch
Patch10: new.patch
%description
%prep
%autosetup -n up-1 -p1
"""
AUTOPATCH = AUTOSETUP.replace("%autosetup -n up-1 -p1", "%autosetup -N\n%autopatch -p1 -M 1\n%patch -P 1 -p1 -R")
NIX = """{ lib, stdenv, fetchpatch }:
stdenv.mkDerivation rec {
  pname = "three";
  patches = [
    ./${pname}.patch
    # ./new.patch
  ] ++ [ ./again.patch ] ++ lib.optional stdenv.isDarwin ./module.patch;
  postPatch = ''
    substituteInPlace a.txt --replace b c
  '';
}
"""
META = """{% set name = "three" %}
package:
  name: {{ name }}
source:
  - url: https://example.org/{{ name }}.tar.gz
    patches:
      - {{ name }}.patch
      - again.patch
      - new.patch  # [win]
      # - module.patch
  - folder: pkg
    patches: [module.patch]
{% if cuda %}
    more: true
{% endif %}
"""
RATTLER = """context:
  name: three
source:
  url: https://example.org/${{ name }}.tar.gz
  patches:
    - ${{ name }}.patch
    - again.patch
    - if: win
      then: new.patch
"""
PKGBUILD = """pkgname=up
pkgver=1
_list=(three again)
source=(https://example.org/up.tar.gz three.patch again.patch new.patch)
apply_patch_with_msg() {
  for _patch in "$@"; do
    msg2 "Applying ${_patch}"
    patch -Nbp1 -i "${srcdir}/${_patch}"
  done
}
prepare() {
  cd "${srcdir}/${pkgname}-${pkgver}"
  # patch -p1 -i ../gone.patch
  apply_patch_with_msg "${_list[@]/%/.patch}"
  if [ "$CARCH" = i686 ]; then
    patch -p0 -i ../bare.patch
  fi
  patch -d pkg -p1 < "${srcdir}/module.patch"
  sed -i s/a/b/ a.txt
}
"""
EBUILD = """EAPI=8
inherit cmake
PATCHES=(
    "${FILESDIR}"/three.patch
    "${FILESDIR}/${PN}"-again.patch
    # "${FILESDIR}"/gone.patch
)
src_prepare() {
    use musl && eapply "${FILESDIR}/new.patch"
    cmake_src_prepare
    eapply -p0 "${FILESDIR}"/bare.patch
}
"""
FORMULA = f"""class Up < Formula
  url "https://example.org/up.tar.gz"
  patch :DATA
  on_macos do
    patch :p0, :DATA
  end
  resource "data" do
    patch :DATA
  end
  def install
    inreplace "a.txt", "b", "c"
  end
end

__END__
{THREE}"""
PORTFILE = """vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO up/up
    PATCHES
        three.patch # order matters
        "${CMAKE_CURRENT_LIST_DIR}/again.patch"
        #module.patch
        ${MORE_PATCHES}
    HEAD_REF main
)
if(VCPKG_TARGET_IS_WINDOWS)
    vcpkg_apply_patches(SOURCE_PATH "${SOURCE_PATH}" PATCHES new.patch)
endif()
vcpkg_replace_string("${SOURCE_PATH}/a.txt" "a" "b")
"""


@pytest.mark.parametrize(
    ("name", "text", "steps", "named"),
    [
        pytest.param(
            "up.spec",
            SPEC,
            [*THREE_AGAIN, ("bare.patch", "-p0", "."), ("module.patch", "-p1", "pkg")],
            [
                "new.patch is commented out",
                "only if 0%{?rhel}",
                "only if %{with extra}",
                "unused.patch is declared",
                "sed",
            ],
            id="rpm-patch",
        ),
        pytest.param("up.spec", AUTOSETUP, [*THREE_AGAIN, ("new.patch", "-p1", ".")], [], id="rpm-autosetup"),
        pytest.param(
            "up.spec",
            AUTOPATCH,
            [*THREE_AGAIN, ("again.patch", "-p1 -R", ".")],
            ["new.patch is declared, and never applied"],
            id="rpm-autopatch-and-reverse",
        ),
        pytest.param(
            "package.nix",
            NIX,
            THREE_AGAIN,
            ["only if stdenv.isDarwin", "./new.patch is commented out", "substituteInPlace"],
            id="nix",
        ),
        pytest.param(
            "meta.yaml",
            META,
            [*THREE_AGAIN, ("module.patch", "-p1", "pkg")],
            ["new.patch is applied only if win", "module.patch is commented out"],
            id="conda-build",
        ),
        pytest.param("recipe.yaml", RATTLER, THREE_AGAIN, ["new.patch is applied only if win"], id="rattler-build"),
        pytest.param(
            "PKGBUILD",
            PKGBUILD,
            [*THREE_AGAIN, ("module.patch", "-p1", "pkg")],
            ["gone.patch is commented out", 'only if [ "$CARCH" = i686 ]', "new.patch is declared", "--run 'sed -i"],
            id="arch",
        ),
        pytest.param(
            "portfile.cmake",
            PORTFILE,
            THREE_AGAIN,
            ["module.patch is commented out", "only if VCPKG_TARGET_IS_WINDOWS", "vcpkg_replace_string"],
            id="vcpkg",
        ),
    ],
)
def test_the_tree_of_the_packagers_tool(
    patchq: Patchq,
    upstream: Path,
    tmp_path: Path,
    name: str,
    text: str,
    steps: list[tuple[str, str, str]],
    named: list[str],
) -> None:
    recipe = write(tmp_path / "recipe", name, text)
    shown = patchq.ok("import", "up", str(recipe), *ME, "--dry-run")
    for words in named:
        assert words in " ".join(shown.split()), words
    assert imported(patchq, recipe) == native(upstream, recipe.parent, steps, tmp_path / "native")


EDITS = """Name: up
Patch0: new.patch
%prep
%autosetup -p1
sed -i 's/line 30/line %%/' a.txt
pushd pkg
sed -i "s/return 1$/return 'one'/" mod.py
popd
sed -i "s|x|%{_datadir}|" a.txt
for f in a.txt; do
  sed -i 's/a/b/' $f
done
"""


def test_the_command_for_an_edit_of_a_spec_works(patchq: Patchq, tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe", "up.spec", EDITS)
    shown = patchq.ok("import", "up", str(recipe), *ME)
    commands = re.findall(r"to make the edit: `patchq (import up --run .*)`$", shown, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        patchq.ok(*shlex.split(command))
    assert shown.count("to make the edit: `patchq apply up`, edit `.patchq/trees/up`") == 2
    patchq.ok("apply")
    assert "line %\n" in (patchq.tree() / "a.txt").read_text()
    assert "return 'one'" in (patchq.tree() / "pkg/mod.py").read_text()


def test_a_folder_with_a_recipe(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe", "up.spec", AUTOSETUP)
    shown = patchq.ok("import", "up", str(recipe.parent), *ME, "--dry-run")
    assert "bare.patch is not listed in up.spec: left out" in shown
    steps = [*THREE_AGAIN, ("new.patch", "-p1", ".")]
    assert imported(patchq, recipe.parent) == native(upstream, recipe.parent, steps, tmp_path / "native")


@pytest.mark.parametrize("sources", ["SOURCES", "SPECS/SOURCES"])
def test_a_spec_of_an_rpmbuild_tree(patchq: Patchq, tmp_path: Path, sources: str) -> None:
    write(tmp_path / sources, "README", "")
    spec = tmp_path / "SPECS/up.spec"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(AUTOSETUP)
    patchq.ok("import", "up", str(spec), *ME)
    assert [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]] == ["three", "again", "new"]
    (tmp_path / sources / "new.patch").unlink()
    shown = patchq.fails(3, "import", "up", str(spec), *ME, "--dry-run")
    looked = ", ".join(str(tmp_path / folder) for folder in ("SPECS", "SPECS/SOURCES", "SOURCES"))
    assert f"new.patch is not next to the recipe (looked in {looked})" in shown


@pytest.mark.parametrize("of_folder", [False, True])
def test_a_recipe_is_imported_again(patchq: Patchq, tmp_path: Path, of_folder: bool) -> None:
    text = "{ patches = [ ./three.patch ./again.patch ]; }"
    recipe = write(tmp_path / "recipe", "package.nix", text)
    path = recipe.parent if of_folder else recipe
    patchq.ok("import", "up", str(path), *ME)
    before = patchq.snapshot()
    shown = patchq.ok("import", "up", str(path), *ME)
    assert f"up: equal: three: {recipe.parent}/three.patch: the stack already has this patch" in shown
    assert "up: equal: again: " in shown
    assert "gone" not in shown
    assert patchq.snapshot() == before
    recipe.write_text(text.replace(" ]", " ./new.patch ]"))
    assert "2 equal, 1 new" in patchq.ok("import", "up", str(recipe), *ME, "--dry-run")
    patchq.ok("import", "up", str(recipe), *ME)
    assert [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]] == ["three", "again", "new"]
    recipe.write_text(text.replace("./again.patch ", ""))
    shown = patchq.ok("import", "up", str(path), *ME)
    origin = f"{tmp_path.name}/recipe/again.patch"
    assert f"up: gone: again: the import no longer applies {origin}: `patchq drop up/again` removes the patch" in shown


def series_of(patchq: Patchq) -> list[str]:
    return [p["name"] for p in json.loads(patchq.ok("list", "--json"))["patches"]]


@pytest.fixture
def plain(patchq: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of plain patches that was imported, with a patch of the user on top."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "1-three.patch").write_text(THREE)
    (folder / "2-bare.patch").write_text(BARE)
    monkeypatch.chdir(tmp_path)
    patchq.ok("import", "up", "plain", *ME)
    patchq.ok("apply")
    (patchq.tree() / "pkg/mod.py").write_text("mine = 1\n")
    patchq.ok("new", "up", "mine")
    return folder


@pytest.mark.parametrize("path", ["plain", "plain/1-three.patch"])
def test_plain_patches_are_imported_again(patchq: Patchq, plain: Path, path: str) -> None:
    before = patchq.snapshot()
    shown = patchq.ok("import", "up", path, *ME, "-s")
    assert "up: nothing changed (3 patches)" in shown
    assert "up: equal: three: plain/1-three.patch: the stack already has this patch" in shown
    assert "gone" not in shown
    assert patchq.snapshot() == before
    (plain / "2-bare.patch").unlink()
    shown = patchq.ok("import", "up", "plain", *ME)
    assert "up: gone: bare: the import no longer applies plain/2-bare.patch: `patchq drop up/bare`" in shown
    assert "gone: mine" not in shown


def test_a_changed_patch_names_the_one_that_it_replaces(patchq: Patchq, plain: Path) -> None:
    (plain / "1-three.patch").write_text(THREE.replace("line three", "line 3!"))
    before = patchq.snapshot()
    shown = patchq.fails(3, "import", "up", "plain", *ME)
    assert "plain/1-three.patch: the patch makes another change than up/three\nnothing was adopted\n" in shown
    assert "upstream has" not in shown
    assert "`patchq drop up/three`, then import again" in shown
    assert patchq.snapshot() == before
    shown = patchq.fails(3, "import", "up", "plain", *ME, "--dry-run")
    assert "1 conflict, 1 equal" in shown
    patchq.ok("drop", "up/three")
    patchq.ok("import", "up", "plain", *ME)
    assert series_of(patchq) == ["three", "bare", "mine"]
    patchq.ok("apply")
    assert "line 3!\n" in (patchq.tree() / "a.txt").read_text()


def test_a_patch_that_changed_in_its_white_space_is_no_equal_one(patchq: Patchq, plain: Path) -> None:
    (plain / "1-three.patch").write_text(THREE.replace("+line three", "+    line three"))
    shown = patchq.fails(3, "import", "up", "plain", *ME)
    assert "plain/1-three.patch: the patch makes another change than up/three\n" in shown


def test_a_changed_patch_keeps_its_message(patchq: Patchq, plain: Path) -> None:
    """The first commands of the hint work as printed, and lose no trailer."""
    patchq.ok("reword", "three", "-m", "Spell it", "--trailer", "Topic: words")
    (plain / "1-three.patch").write_text(THREE.replace("line three", "line 3!"))
    shown = patchq.fails(3, "import", "up", "plain", *ME)
    fix, amend, *_ = re.findall(r"`patchq ([^`]+)`", shown)
    patchq.ok(*shlex.split(fix))
    file = patchq.tree() / "a.txt"
    file.write_text(file.read_text().replace("line three\n", "line 3!\n"))
    patchq.ok(*shlex.split(amend))
    assert "Topic: words\n" in patchq.patch_file("three").read_text()
    assert "Subject: Spell it\n" in patchq.patch_file("three").read_text()
    assert "up: equal: three: " in patchq.ok("import", "up", "plain", *ME)


def test_an_unrelated_patch_of_the_same_name_is_new(patchq: Patchq, plain: Path) -> None:
    other = plain.parent / "other/three.patch"
    other.parent.mkdir()
    other.write_text(NEW)
    assert "up: added three-2" in patchq.ok("import", "up", "other", *ME)


def test_an_ebuild(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    files = write(tmp_path / "up/files", "up-again.patch", AGAIN).parent
    (tmp_path / "up/up-1.0-r2.ebuild").write_text(EBUILD)
    shown = patchq.ok("import", "up", str(tmp_path / "up"), *ME, "--dry-run")
    assert "files/new.patch is applied only if use musl" in shown
    assert "gone.patch is commented out" in shown
    steps = [*THREE_AGAIN, ("bare.patch", "-p0", ".")]
    assert imported(patchq, tmp_path / "up") == native(upstream, files, steps, tmp_path / "native")


def test_a_formula(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    recipe = write(tmp_path, "up.rb", FORMULA)
    shown = " ".join(patchq.ok("import", "up", str(recipe), *ME, "--dry-run").split())
    assert "DATA is applied only if on_macos" in shown
    assert "for another source (resource data)" in shown
    assert "left out, because it is an edit and not a patch: `inreplace" in shown
    assert imported(patchq, recipe) == native(upstream, tmp_path, [("three.patch", "-p1", ".")], tmp_path / "native")
    message = patchq.patch_file("up").read_text()
    assert "Subject: Up\n" in message
    assert "Formula" not in message


def test_a_port(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    files = tmp_path / "port/files"
    files.mkdir(parents=True)
    (files / "patch-a.txt").write_text(BARE)
    (files / "patch-pkg_mod.py").write_text(MODULE.replace("a/mod", "pkg/mod").replace("b/mod", "pkg/mod"))
    (files / "patch-pkg_mod.py.orig").write_text("not this")
    (files / "extra-patch-new").write_text(NEW.replace("b/pkg", "pkg"))
    (tmp_path / "port/Makefile").write_text(
        "PORTNAME=up\n.if defined(X)\nEXTRA_PATCHES+=${FILESDIR}/extra-patch-new\n.endif\n"
    )
    assert "extra-patch-new is applied only if defined(X)" in patchq.ok(
        "import", "up", str(files.parent), *ME, "--dry-run"
    )
    steps = [("patch-a.txt", "-p0", "."), ("patch-pkg_mod.py", "-p0", ".")]
    assert imported(patchq, files.parent) == native(upstream, files, steps, tmp_path / "native")


def test_a_given_level_holds_for_new_files(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """Without a recipe, patchq would put `pkg/new.py` into `pkg`; `patch -p1` doesn't."""
    recipe = write(tmp_path / "recipe", "PKGBUILD", "prepare() {\n  cd up\n  patch -p1 -i ../plain.patch\n}\n")
    (recipe.parent / "plain.patch").write_text(NEW.replace("b/pkg", "pkg"))
    steps = [("plain.patch", "-p1", ".")]
    assert imported(patchq, recipe) == native(upstream, recipe.parent, steps, tmp_path / "native")
    assert (patchq.tree() / "new.py").is_file()


def test_emptied_files(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    recipe = write(
        tmp_path / "recipe", "PKGBUILD", "build() {\n  cd up\n  patch -ENp1 -i ../empty.patch\n  rm -f x.o\n}\n"
    )
    (recipe.parent / "empty.patch").write_text(
        "--- a/pkg/mod.py\n+++ b/pkg/mod.py\n@@ -1,2 +0,0 @@\n-def f():\n-    return 1\n"
    )
    steps = [("empty.patch", "-ENp1", ".")]
    assert imported(patchq, recipe) == native(upstream, recipe.parent, steps, tmp_path / "native")


@pytest.mark.parametrize(
    ("name", "text", "message", "hint"),
    [
        (
            "up.nix",
            '{ fetchpatch }: { patches = [ (fetchpatch { url = "https://h.org/o/up/commit/12ab34cd.patch"; }) ]; }',
            "https://h.org/o/up/commit/12ab34cd.patch is downloaded",
            "patchq import up https://h.org/o/up/commit/12ab34cd",
        ),
        (
            "up.rb",
            'class Up < Formula\n  patch do\n    url "https://h.org/x.diff"\n    sha256 "00"\n  end\nend\n',
            "https://h.org/x.diff is downloaded",
            "`curl -fLo x.diff https://h.org/x.diff && patchq import up x.diff`",
        ),
        ("up.nix", "{ patches = old.patches ++ [ ./three.patch ]; }", "old.patches has values that", "in order"),
        (
            "up.nix",
            "{ patches = [ (replaceVars ./three.patch { }) ]; }",
            "applied with replaceVars",
            "`patchq new up three`",
        ),
        ("up.spec", "Patch0: gone.patch\n%prep\n%patch0 -p1\n", "gone.patch is not next to the recipe", "restore"),
        (
            "PKGBUILD",
            "prepare() {\n  patch -lp1 -i three.patch\n}\n",
            "three.patch is applied with -l",
            "`patchq new up three`",
        ),
        ("PKGBUILD", "prepare() {\n  patch -p1 -i $(get)\n}\n", "has values that the recipe doesn't show", "in order"),
    ],
)
def test_refusals(patchq: Patchq, tmp_path: Path, name: str, text: str, message: str, hint: str) -> None:
    recipe = write(tmp_path / "recipe", name, text)
    shown = patchq.fails(1, "import", "up", str(recipe), *ME)
    assert message in shown
    assert hint in shown
    assert json.loads(patchq.ok("list", "--json"))["patches"] == []


def test_a_patch_outside_the_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "three.patch").write_text(THREE)
    recipe = write(tmp_path / "recipe", "up.nix", "{ patches = [ ../three.patch ]; }")
    assert [entry.state for entry in recipe_entries(recipe, "up")] == [EntryState.MISSING]
    (tmp_path / ".git").mkdir()
    assert [entry.state for entry in recipe_entries(recipe, "up")] == [EntryState.TAKEN]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("up.spec", "Name: up\n%prep\n%setup -q\n"),
        ("up.nix", "{ patches = [ ./a.patch ]; x = { patches = [ ./b.patch ]; }; }"),
        ("meta.yaml", "source: [\n"),
        ("portfile.cmake", "vcpkg_from_github(PATCHES"),
        ("up.nix", "(" * 3000),
        ("up.spec", "%global a %{b}%{b}\n%global b %{a}%{a}\nPatch0: %{a}\n%prep\n%setup\n" + "%if 1\n" * 3000),
    ],
)
def test_recipes_without_a_list(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(PatchqError):
        recipe_entries(write(tmp_path, name, text), "up")


HG = """# HG changeset patch
# User Jane Roe <jane@example.org>
# Date 1700000000 -7200
#      Tue Nov 14 22:13:20 2023 +0200
# Branch stable
# Node ID 0123456789012345678901234567890123456789
# Parent  9876543210987654321098765432109876543210
Spell three

It reads better.

diff -r 987654321098 -r 012345678901 a.txt
"""


def test_an_export_of_mercurial(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """Author, date and message are those of `git am`."""
    file = tmp_path / "three.hg"
    file.write_text(HG + THREE)
    git(upstream, "checkout", "-q", "-b", "am", "v1")
    git(upstream, "am", "-q", str(file))
    wanted = git(upstream, "log", "-1", "--format=%an <%ae>%n%ad%n%B")
    git(upstream, "checkout", "-q", "main")
    patchq.ok("import", "up", str(file))
    patchq.ok("apply")
    shown = git(patchq.tree(), "log", "-1", "--format=%an <%ae>%n%ad%n%B")
    assert shown.startswith(wanted)
    assert git(patchq.tree(), "rev-parse", "HEAD^{tree}") == git(upstream, "rev-parse", "am^{tree}")


def test_several_changesets(patchq: Patchq, tmp_path: Path) -> None:
    box = HG + THREE + HG.replace("Spell three", "Again").replace("Jane Roe <jane@example.org>", "jane") + AGAIN
    done = CliRunner().invoke(cli, ["--project", str(patchq.root), "import", "up", "-", *ME], input=box)
    assert done.exit_code == 0, done.output
    patches = json.loads(patchq.ok("list", "--json"))["patches"]
    assert [patch["name"] for patch in patches] == ["spell-three", "again"]
    assert "Date: Wed, 15 Nov 2023 00:13:20 +0200" in patchq.patch_file("again").read_text()
