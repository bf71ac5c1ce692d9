"""Words of the alarms that ``drift`` and ``forecast --why`` print."""

from __future__ import annotations

from patchq.cli.drifted import say_alarm
from patchq.drift.alarms import Alarm, Kind


def test_each_kind_has_words() -> None:
    for kind in Kind:
        alarm = Alarm(kind=kind.value, upstream="up", path="a.py", line=1, function="f", callee="g", now="h")
        assert "{" not in say_alarm(alarm), kind
        assert "h" in say_alarm(alarm) or "g" in say_alarm(alarm) or kind in (Kind.BODY, Kind.GONE)


def test_an_override_of_a_called_method_names_both() -> None:
    alarm = Alarm(
        kind="new override", upstream="up", path="a.py", line=1, function="f", callee="Base.go", now="Child.go"
    )
    assert say_alarm(alarm) == "Child.go now overrides Base.go, which the patch calls"
