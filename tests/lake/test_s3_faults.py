"""A store that fails, slows down, resets and loses answers: each message in the table once."""

import os
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable as Log
from tests.lake.conftest import QUEUES, WANTED, archive, batch, location_of, whole, written
from tests.lake.fault_proxy import Fault, FaultProxy, fault_proxy

from roquet.lake.kinds.delta.delta_table import DeltaTable
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from tests.spark_suite.conftest import S3Server

pytestmark = pytest.mark.spark_suite

TABLE = "s3://lake/orders"
ENTRY = "_delta_log/00000000000000000002.json"
"""The log entry of the second commit."""


@pytest.fixture
def proxy(s3: "S3Server") -> Iterator[FaultProxy]:
    """A proxy in front of the server."""
    with fault_proxy(s3.url) as running:
        yield running


class FaultyTable:
    """An archive that reaches its table through the proxy."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    @property
    def location(self) -> ObjectLocation:
        return location_of(TABLE, AWS_ENDPOINT_URL=self._proxy.url)

    def archive(self, after: int) -> None:
        """One run of a driver: from where the table is to these offsets."""
        with DeltaTable(self.location, WANTED) as table:
            before = table.state(QUEUES).offsets.get(QUEUES[0], 0)
            if before < after:
                archive(table, before, after)

    def archive_until_it_ends(self, after: int) -> int:
        """Start runs until one ends well; returns how many did not."""
        for failed in range(5):
            try:
                self.archive(after)
            except RoquetError:
                continue
            return failed
        raise AssertionError("no run came to its end")

    def places(self) -> list[tuple[str, int, int]]:
        """What others read from the table, without the proxy."""
        rows = Log(TABLE).to_pyarrow_table(columns=["broker", "queue_id", "queue_offset"])
        return sorted(tuple(row.values()) for row in rows.to_pylist())


@pytest.fixture
def table(proxy: FaultProxy) -> FaultyTable:
    """A table with one commit, of the first ten messages of each queue."""
    faulty = FaultyTable(proxy)
    faulty.archive(10)
    return faulty


@pytest.mark.parametrize(
    "fault", [Fault.ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.FAILED_ANSWER]
)
@pytest.mark.parametrize("part", ["day=", ENTRY, "_roquet/runs"])
def test_a_request_that_fails_once_is_repeated(
    table: FaultyTable, proxy: FaultProxy, fault: Fault, part: str
) -> None:
    proxy.add(fault, part=part)
    table.archive(20)
    assert proxy.faults == [fault]
    assert table.places() == whole(20)
    table.archive(30)
    assert table.places() == whole(30)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.SLOW_DOWN, Fault.LOST_ANSWER])
def test_reads_that_fail_are_repeated(
    table: FaultyTable, proxy: FaultProxy, fault: Fault, method: str
) -> None:
    proxy.add(fault, method, times=2)
    table.archive(20)
    assert table.places() == whole(20)


@pytest.mark.parametrize(
    ("fault", "part", "says"),
    [
        (Fault.RESET, "day=", r"^[^\n]+$"),
        (Fault.EXPIRED, "day=", r"^[^\n]+$"),
        (Fault.EXPIRED, ENTRY, r"^[^\n]+ have expired: renew [^\n]+$"),
    ],
)
def test_what_goes_on_failing_is_an_error_and_the_next_run_does_it(
    table: FaultyTable, proxy: FaultProxy, fault: Fault, part: str, says: str
) -> None:
    proxy.add(fault, part=part, times=1_000)
    with pytest.raises(StorageFailed, match=says):
        table.archive(20)
    assert table.places() == whole(10), "nothing is half visible"
    proxy.clear()
    table.archive(20)
    assert table.places() == whole(20)


def test_a_commit_that_happened_and_was_lost_again_and_again_is_not_made_again(
    table: FaultyTable, proxy: FaultProxy
) -> None:
    """The first request does it; those that repeat it are refused, and their answers lost, too."""
    proxy.add(Fault.LOST_ANSWER, part=ENTRY, times=3)
    table.archive_until_it_ends(20)
    assert table.places() == whole(20)
    assert Log(TABLE).version() == 2


EXPIRED = "^the credentials for s3://lake/orders have expired: renew AWS_ACCESS_KEY_ID"
SKEWED = "refuses requests for s3://lake/orders, because a clock is wrong: set those of the dr"
ELSEWHERE = "^bucket lake is in another region than us-east-1: set AWS_REGION"


@pytest.mark.parametrize(
    ("fault", "method", "says"),
    [
        (Fault.EXPIRED, "GET", EXPIRED),
        (Fault.EXPIRED, "PUT", EXPIRED),
        (Fault.EXPIRED, "HEAD", "without a reason: check whether AWS_ACCESS_KEY_ID, .* have exp"),
        (Fault.SKEWED, "GET", SKEWED),
        (Fault.SKEWED, "PUT", SKEWED),
        (Fault.ELSEWHERE, "HEAD", ELSEWHERE),
        (Fault.ELSEWHERE, "GET", ELSEWHERE),
        (Fault.ELSEWHERE, "PUT", ELSEWHERE),
        (Fault.SLOW_DOWN, "GET", "^s3://lake/orders: .*(SLOW_DOWN|SlowDown|503)"),
    ],
)
def test_a_store_that_goes_on_refusing_is_one_sentence(
    proxy: FaultProxy, fault: Fault, method: str, says: str
) -> None:
    proxy.add(fault, method, times=1_000)
    with pytest.raises(StorageFailed, match=says) as error:
        FaultyTable(proxy).archive(10)
    assert "\n" not in str(error.value)


def test_a_large_file_is_uploaded_in_parts_that_may_fail(s3: "S3Server", proxy: FaultProxy) -> None:
    store = ObjectStore(FaultyTable(proxy).location)
    data = os.urandom(24 * 1024 * 1024)
    for fault in (Fault.RESET, Fault.SLOW_DOWN, Fault.LOST_ANSWER):
        proxy.clear()
        proxy.add(fault, part="partNumber=2")
        store.put("large", data)
        assert proxy.faults == [fault]
        with s3.files().open_input_stream("lake/orders/large") as stream:
            assert stream.read() == data
        store.remove("large")


def test_a_large_file_whose_parts_go_on_failing_is_not_there(
    s3: "S3Server", proxy: FaultProxy
) -> None:
    store = ObjectStore(FaultyTable(proxy).location)
    proxy.add(Fault.EXPIRED, part="partNumber=2", times=1_000)
    with pytest.raises(StorageFailed, match="have expired"), store.writer("large") as stream:
        stream.write(os.urandom(24 * 1024 * 1024))
    assert s3.stored() == []


def test_an_upload_that_was_left_open_is_nobodys_file(table: FaultyTable, s3: "S3Server") -> None:
    url = f"{s3.url}/lake/orders/day%3D2026-01-31/x?uploads"
    request = urllib.request.Request(url, method="POST")
    with urllib.request.urlopen(request) as reply:
        assert b"UploadId" in reply.read()
    table.archive(20)
    with DeltaTable(table.location, WANTED) as opened:
        assert opened.clean() == 0
    assert table.places() == whole(20)


def test_a_task_that_fails_while_it_uploads_leaves_no_file(
    table: FaultyTable, s3: "S3Server", proxy: FaultProxy
) -> None:
    before = s3.stored()
    with DeltaTable(table.location, WANTED) as opened:
        proxy.add(Fault.EXPIRED, part="day=", times=1_000)
        with pytest.raises(StorageFailed, match=EXPIRED):
            written(opened.begin(), batch(range(10, 20)))
    assert [key for key in s3.stored() if "/_roquet/" not in key] == [
        key for key in before if "/_roquet/" not in key
    ]
