"""Programs of Apache's Java client."""

from harness.java_client import PROGRAMS


def test_the_programs_are_there() -> None:
    assert {"Features.java", "GroupMember.java"} <= {path.name for path in PROGRAMS.iterdir()}
