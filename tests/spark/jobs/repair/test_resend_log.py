"""Letters are noted in the log before they are sent again."""

from pathlib import Path

import pytest

from roquet.lake.objects.object_location import TableLocation
from roquet.lake.open_table import table_location
from roquet.model.errors import RoquetError, StoreError
from roquet.spark.jobs.repair.resend_log import ResendLog, resent_letters

ENDS = {"orders": {"a": {"0": 7}}}


@pytest.fixture(params=["directory", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> TableLocation:
    if request.param == "directory":
        return tmp_path
    request.getfixturevalue("s3")
    return table_location("s3://lake/letters")


def test_notes_outlive_their_run(root: TableLocation) -> None:
    assert resent_letters(root) == set()
    with ResendLog(root) as resends:
        assert resends.open() == []
        made = resends.decide(["x", "y"], ENDS, {("orders", "a"): "1-1", ("orders", "b"): "2-2"})
        assert made.topic_ids == {"orders": {"a": "1-1", "b": "2-2"}}
    with ResendLog(root) as resends:
        assert resends.open() == [made]
        assert resends.letters() == resent_letters(root) == {"x", "y"}, "readers need no lock"
        resends.done(made)
        resends.done(made)
        assert resends.open() == []
        assert resends.decide(["z"], ENDS, {}).number == made.number + 1
        assert resends.letters() == {"x", "y", "z"}
    assert resent_letters(root) == {"x", "y", "z"}


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


def test_a_log_of_an_object_store_has_one_run_at_a_time(s3: object) -> None:
    root = table_location("s3://lake/letters")
    with ResendLog(root) as resends:
        with pytest.raises(RoquetError, match="another repair of s3://lake/letters works here"):
            ResendLog(root)
        resends.hold()
        resends.decide(["x"], ENDS, {})
    with ResendLog(root) as resends:
        assert resends.letters() == {"x"}
