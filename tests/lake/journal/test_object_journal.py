"""Records change by compare-and-set: of two processes that change them, one is refused."""

from typing import TYPE_CHECKING

import pytest
from tests.lake.conftest import location_of
from tests.lake.fault_proxy import Fault, fault_proxy

from roquet.lake.journal.object_journal import JournalConflict, ObjectJournal
from roquet.lake.objects.object_store import StorageFailed

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server


def opened(**storage: str) -> ObjectJournal:
    journal = ObjectJournal(location_of("s3://lake/notes", **storage))
    journal.read()
    return journal


def test_records_are_added_replaced_and_removed(s3: "S3Server") -> None:
    journal = opened()
    assert journal.names() == []
    journal.change({"b": b"two", "a": b"one"})
    journal.change({"a": b"more", "c.open": b"%/"}, ["b"])
    for each in (journal, opened()):
        assert each.names() == ["a", "c.open"]
        assert (each.content("a"), each.content("c.open")) == (b"more", b"%/")
    assert len([key for key in s3.stored("notes") if key.endswith(".parquet")]) == 2
    with pytest.raises(KeyError):
        journal.content("b")


def test_a_record_has_an_age_by_the_clock_of_the_store(s3: "S3Server") -> None:
    journal = opened()
    journal.change({"a": b""})
    assert 0 <= journal.age_ms("a") < 60_000


@pytest.mark.parametrize("is_new", [True, False])
def test_the_second_of_two_changes_is_refused(s3: "S3Server", is_new: bool) -> None:
    if not is_new:
        opened().change({"0": b""})
    first, second = opened(), opened()
    first.change({"a": b"of the first"})
    with pytest.raises(JournalConflict, match="another process has changed s3://lake/notes"):
        second.change({"b": b"of the second"})
    second.read()
    assert (second.names()[-1], second.content("a")) == ("a", b"of the first")
    second.change({"b": b"of the second"})
    first.read()
    assert first.names()[-2:] == ["a", "b"]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.FAILED_ANSWER])
def test_a_change_whose_answer_was_lost_has_happened_once(s3: "S3Server", fault: Fault) -> None:
    with fault_proxy(s3.url) as proxy:
        journal = opened(AWS_ENDPOINT_URL=proxy.url)
        journal.change({"a": b"one"})
        proxy.add(fault, part="_delta_log/00000000000000000002.json")
        journal.change({"b": b"two"}, ["a"])
        assert proxy.faults == [fault]
        assert journal.names() == ["b"]
    assert opened().content("b") == b"two"


def test_a_change_that_did_not_happen_is_an_error_and_may_be_repeated(s3: "S3Server") -> None:
    with fault_proxy(s3.url) as proxy:
        journal = opened(AWS_ENDPOINT_URL=proxy.url)
        journal.change({"a": b"one"})
        proxy.add(Fault.EXPIRED, part="_delta_log/00000000000000000002.json", times=20)
        with pytest.raises(StorageFailed, match="have expired"):
            journal.change({"b": b"two"})
        proxy.clear()
        assert journal.names() == ["a"]
        journal.change({"b": b"two"})
    assert opened().names() == ["a", "b"]
