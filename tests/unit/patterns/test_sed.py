"""Rules of `sed` commands: what they give is what sed gives."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from patchq.patterns.regenerate import TextTree, regenerate
from patchq.patterns.sed import sed_rules

TEXT = (
    rb"""first = foo(1)  # /usr/bin
second = foo(22) && bar[3]
third.x = "a\b" 'c'
thirdxx = a+b*c (d)
"""
    + b"tab\there\n"
)


@pytest.mark.parametrize(
    ("command", "literal"),
    [
        ("sed -i 's/foo/bar/'", True),
        ("sed -i 's/foo/bar/g; s/bar/baz/g'", True),
        ("sed -i -e 's/first/1st/' -e 's/second/2nd/'", True),
        ("sed -i 's|/usr/bin|/opt|'", True),
        (r"sed -i 's/third\.x/thirdy/'", True),
        (r"sed -i 's#\[3\]#[4]#'", True),
        (r"sed -i 's/foo/(&)/g'", True),
        (r"sed -i 's/a\\b/a/'", True),
        ("sed -i 's/a+b/ab/'", True),
        ("sed -i 's/(d)/d/'", True),
        (r"sed -i 's/tab\there/x\ty/'", True),
        (r"sed -i 's/foo(\([0-9]*\))/bar(\1, \1)/'", False),
        (r"sed -E -i 's/foo\(([0-9]+)\)/bar[\1]/'", False),
        ("sed -i 's/^second/&ly/'", False),
        ("sed -i 's/here$/y/'", False),
        ("sed -i 's/# .*/# gone/'", False),
        ("sed -i 's/[^=]*= foo/x = foo/'", False),
        ("sed -i 's/third[.x]/T/'", False),
        ("sed -i 's/nothing/x/; s/foo/bar/'", True),
    ],
)
def test_the_rules_give_what_sed_gives(tmp_path: Path, command: str, literal: bool) -> None:
    (tmp_path / "f").write_bytes(TEXT)
    subprocess.run([*shlex.split(command), "f"], cwd=tmp_path, check=True)
    rules = sed_rules(f"{command} f", [b"f"], TextTree({b"f": TEXT}))
    assert rules
    assert regenerate(rules, TextTree({b"f": TEXT})) == {b"f": (tmp_path / "f").read_bytes()}
    assert all(rule.regex is not literal for rule in rules)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i '2s/foo/bar/' f",
        "sed -i '/second/s/foo/bar/' f",
        "sed -i 's/foo/bar/2' f",
        "sed -i 's/foo/bar/I' f",
        "sed -i '/foo/d' f",
        r"sed -i 's/\s*=/=/' f",
        "sed -i 's/[[:space:]]/_/' f",
        r"sed -i 's/foo/\U&/' f",
        "sed -i -E 's/foo|bar/x/' f",
        "sed -i -E 's/(o)+/x/' f",
        "sed -i 's/foo/bar/' f && rm f",
        "sed -n 's/foo/bar/p' f",
        "perl -pi -e 's/foo/bar/' f",
        "sed -i 's/foo/bar f",
        "",
    ],
)
def test_other_commands_have_no_rules(command: str) -> None:
    assert sed_rules(command, [b"f"], TextTree({b"f": TEXT})) == []
