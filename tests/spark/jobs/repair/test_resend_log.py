"""Letters are noted in the log before they are sent again."""

from pathlib import Path

import pytest

from roquet.model.errors import RoquetError, StoreError
from roquet.spark.jobs.repair.resend_log import ResendLog

ENDS = {"orders": {"a": {"0": 7}}}


def test_notes_outlive_their_run(tmp_path: Path) -> None:
    with ResendLog(tmp_path) as resends:
        assert resends.open() == []
        made = resends.decide(["x", "y"], ENDS, {("orders", "a"): "1-1", ("orders", "b"): "2-2"})
        assert made.topic_ids == {"orders": {"a": "1-1", "b": "2-2"}}
    with ResendLog(tmp_path) as resends:
        assert resends.open() == [made]
        assert resends.letters() == {"x", "y"}
        resends.done(made)
        resends.done(made)
        assert resends.open() == []
        assert resends.decide(["z"], ENDS, {}).number == made.number + 1
        assert resends.letters() == {"x", "y", "z"}


def test_two_repairs_of_a_table_do_not_run_at_once(tmp_path: Path) -> None:
    with ResendLog(tmp_path), pytest.raises(RoquetError, match="another repair works on"):
        ResendLog(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no note of letters"),
        ('{"number": 1, "letters": [], "ends": {}, "version": 2}', "newer Roquet"),
    ],
)
def test_a_note_that_cannot_be_read_is_named(tmp_path: Path, text: str, says: str) -> None:
    with ResendLog(tmp_path) as resends:
        (tmp_path / "_roquet" / "resends" / "0000000001.open").write_text(text)
        with pytest.raises(StoreError, match=says):
            resends.letters()
