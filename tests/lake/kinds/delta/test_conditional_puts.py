"""Conditional puts: a store that would replace log entries is refused before a write."""

from collections.abc import Iterator
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError
from tests.lake.conftest import WANTED, DirectoryObjects, location_of
from tests.lake.fault_proxy import Fault, FaultProxy, fault_proxy

from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.kinds.delta import conditional_puts
from roquet.lake.kinds.delta.conditional_puts import check_conditional_puts, is_refused
from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.objects import object_store
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import StorageFailed
from roquet.model.errors import ConfigError

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server

PLACE = ObjectLocation("s3://lake/orders", {"AWS_ENDPOINT_URL": "http://10.0.0.9:9000"})

REFUSED, DOUBLED, UNKNOWN = True, False, None

SAYS = "^http://.* accepted one object of s3://lake/orders from two writers: it ignores If-None-Mat"

FOUND = DeltaError("Generic error: A Delta Lake table already exists at that location.")


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """A process that knows no store yet."""
    conditional_puts.check_server.cache_clear()
    yield
    conditional_puts.check_server.cache_clear()


@pytest.mark.parametrize(
    ("errors", "result"),
    [
        ([], DOUBLED),
        ([CommitFailedError("Failed to commit transaction: 0")], REFUSED),
        ([CommitFailedError("Failed to commit transaction: 0")] * 2, REFUSED),
        ([FOUND], UNKNOWN),
        ([OSError("Connection refused"), FOUND], UNKNOWN),  # the other's request did arrive
        ([BrokenBarrierError(), BrokenBarrierError()], UNKNOWN),  # a thread never started
    ],
)
def test_the_second_of_two_writers_shows_what_a_store_does(
    errors: list[Exception], result: bool | None
) -> None:
    assert is_refused(errors, PLACE) is result


def test_a_store_that_serves_neither_writer_is_an_error_of_its_own() -> None:
    with pytest.raises(StorageFailed, match="cannot be reached for s3://lake/orders"):
        is_refused([OSError("Connection refused")] * 2, PLACE)


def test_a_writer_whose_other_thread_never_starts_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_puts, "Barrier", lambda *_, **__: Barrier(3, timeout=0.01))
    assert conditional_puts.create_twice(PLACE, PLACE) is UNKNOWN


@pytest.mark.parametrize(
    ("results", "is_safe"),
    [
        ([REFUSED], True),
        ([UNKNOWN, UNKNOWN, REFUSED], True),
        ([DOUBLED, DOUBLED, REFUSED], True),
        ([DOUBLED, UNKNOWN, DOUBLED, DOUBLED], False),
        ([UNKNOWN] * conditional_puts.TRIES, True),
    ],
)
def test_a_store_is_refused_once_it_has_doubled_three_tables_and_refused_none(
    results: list[bool | None],
    is_safe: bool,
    objects: DirectoryObjects,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = iter(results)
    monkeypatch.setattr(conditional_puts, "create_twice", lambda place, location: next(left))
    if is_safe:
        check_conditional_puts(PLACE)
        check_conditional_puts(PLACE)  # asks for nothing more
    else:
        with pytest.raises(ConfigError, match=SAYS):
            check_conditional_puts(PLACE)
    assert next(left, None) is None
    assert ("it is unknown whether" in caplog.text) == (REFUSED not in results and is_safe)
    assert objects.stored() == set()


def test_an_emulator_of_google_is_asked_too(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "google_file_system", lambda options: objects)
    monkeypatch.setattr(conditional_puts, "create_twice", lambda place, location: DOUBLED)
    place = ObjectLocation("gs://lake/orders", {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:4443"})
    says = r"it ignores x-goog-if-generation-match, so one .* Give a store that honours it$"
    with pytest.raises(ConfigError, match=says):
        check_conditional_puts(place)


def test_stores_that_are_known_to_honour_it_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_puts, "create_twice", None)
    check_conditional_puts(ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"}))


@pytest.mark.spark_suite
def test_a_server_that_honours_it_is_asked_once_and_keeps_nothing(s3: "S3Server") -> None:
    check_conditional_puts(location_of("s3://lake/orders"))
    assert s3.stored() == []


@pytest.fixture
def proxy(s3: "S3Server") -> Iterator[FaultProxy]:
    """A store that ignores conditions."""
    with fault_proxy(s3.url) as running:
        running.add(Fault.UNCONDITIONAL, times=1_000)
        yield running


@pytest.mark.spark_suite
def test_an_archive_into_a_store_that_ignores_it_is_refused(
    proxy: FaultProxy, s3: "S3Server"
) -> None:
    place = location_of("s3://lake/orders", AWS_ENDPOINT_URL=proxy.url)
    with pytest.raises(ConfigError, match=SAYS):
        DeltaTable(place, WANTED)
    journal = ObjectJournal(place)
    journal.read()
    with pytest.raises(ConfigError, match=SAYS):
        journal.change({"a": b"1"})
    assert s3.stored() == [], "nothing was made, and nothing is left"
