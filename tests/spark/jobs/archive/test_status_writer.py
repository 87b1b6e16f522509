"""An archive notes beside its table how far it is, and ends no run when it cannot."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import CannedCluster
from tests.spark.jobs.conftest import MakeSpark, Topic

from roquet.lake.status import POINTS_MAX, JobStatus, find_status
from roquet.lake.table import TableState
from roquet.model.errors import ConnectFailed
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_job, status_writer
from roquet.spark.jobs.archive.status_writer import StatusWriter
from roquet.spark.options import SourceOptions
from roquet.wire.calls.admin.settings import GetSettings, SettingsReply


class Clock:
    """The time of the driver, which tests set."""

    now_ms = 1_700_000_060_500


class Noted:
    def __init__(self, canned: CannedCluster, root: Path, clock: Clock) -> None:
        settings = SourceOptions(namesrv=(canned.namesrv,), topics=("orders",))
        cluster = ClusterClient(settings, None, lambda ms: None)
        cluster.now_ms = lambda: clock.now_ms  # type: ignore[method-assign]
        self.canned, self.root, self.clock = canned, root, clock
        canned.answer = self._answer
        self.writer = StatusWriter("archive", "orders", root, cluster)

    def _answer(self, broker: str, call: Any) -> Any:
        if isinstance(call, GetSettings):
            return SettingsReply(version="{}", body=b"fileReservedTime=48\n")
        return self.canned.usual_answer(broker, call)

    def update(self, number: int = 1, *, is_end: bool = False, **ends: int) -> JobStatus:
        offsets = {
            ("orders", broker, 0): ends.get(broker[-1], 0) for broker in ("broker-a", "broker-b")
        }
        self.writer.update(TableState(number, offsets), is_end=is_end)
        status = find_status(self.root, "orders")
        assert status is not None
        return status


@pytest.fixture
def noted(canned: CannedCluster, tmp_path: Path) -> Noted:
    return Noted(canned, tmp_path, Clock())


def test_the_lag_and_the_age_of_the_first_waiting_message_are_noted(noted: Noted) -> None:
    noted.canned.send("broker-a", 0, b"1", b"2", b"3")
    status = noted.update(a=1)
    assert (status.lag, status.lag_s) == (2, 60.0)
    assert status.offsets == {"orders": {"broker-a": {"0": 1}, "broker-b": {"0": 0}}}
    assert (status.now.committed, status.retention_s) == (1, 48 * 3600)


def test_a_table_that_has_all_is_not_behind(noted: Noted) -> None:
    noted.canned.send("broker-a", 0, b"1")
    assert noted.update(a=1).lag_s == 0


def test_messages_that_retention_took_are_no_lag_and_seen(noted: Noted) -> None:
    noted.canned.send("broker-a", 0, b"1", b"2", b"3")
    noted.canned.queues["broker-a", 0].forget(2)
    status = noted.update()
    assert status.lag == 1
    assert status.now.lost == 2


def test_a_status_is_written_now_and_then_and_at_the_end(noted: Noted) -> None:
    first = noted.update(1)
    noted.clock.now_ms += status_writer.INTERVAL_MS - 1
    assert noted.update(2) == first
    assert noted.update(2, is_end=True).number == 2
    noted.clock.now_ms += status_writer.INTERVAL_MS
    assert noted.update(3).number == 3


def test_a_clock_that_is_set_back_by_an_hour_stops_no_status(noted: Noted) -> None:
    noted.update(1)
    noted.clock.now_ms -= 3_600_000
    status = noted.update(2)
    assert (status.number, status.now.at_ms) == (2, noted.clock.now_ms)


def test_the_time_of_a_commit_is_that_of_its_first_status(noted: Noted) -> None:
    committed_ms = noted.update(1).committed_ms
    noted.clock.now_ms += 60_000
    assert noted.update(1).committed_ms == committed_ms
    assert noted.update(2, is_end=True).committed_ms == noted.clock.now_ms


def test_points_of_earlier_runs_are_kept_but_not_all(noted: Noted) -> None:
    for _ in range(POINTS_MAX + 5):
        noted.clock.now_ms += 60_000
        again = Noted(noted.canned, noted.root, noted.clock)
        points = again.update().points
    assert len(points) == POINTS_MAX
    assert points[-1].at_ms == noted.clock.now_ms


def test_a_broker_that_does_not_answer_ends_no_job(
    noted: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    noted.canned.failures.extend([ConnectFailed("nobody is there")] * 50)
    noted.writer.update(TableState(1, {("orders", "broker-a", 0): 0}))
    assert find_status(noted.root, "orders") is None
    assert "the status of the table was not written" in caplog.text


def test_a_broker_that_is_gone_for_ever_is_named_and_the_others_are_noted(noted: Noted) -> None:
    noted.canned.send("broker-a", 0, b"1", b"2", b"3")
    noted.canned.send("broker-b", 0, b"1", b"2")
    assert noted.update(1, a=1, b=1).brokers_away == ()
    del noted.canned.addresses["broker-b"]
    noted.clock.now_ms += 60_000
    status = noted.update(2, a=2, b=1)
    assert (status.brokers_away, status.lag) == (("broker-b",), 1)
    assert (status.number, status.now.committed, status.now.lost) == (2, 3, 0)


def test_a_connection_that_ended_during_a_batch_is_made_again(noted: Noted) -> None:
    noted.canned.send("broker-a", 0, b"1", b"2", b"3")
    noted.update(1)
    noted.clock.now_ms += 60_000
    noted.canned.failures.append(ConnectFailed("the peer closed the connection"))
    status = noted.update(2, a=1)
    assert (status.number, status.lag, status.brokers_away) == (2, 2, ())


def test_a_run_of_an_archive_leaves_its_status(
    topic: Topic, eager: MakeSpark, tmp_path: Path
) -> None:
    topic.send(5)
    options = {"namesrv": topic.namesrv}
    params = archive_job.Params(topic="orders", target=str(tmp_path / "lake"), options=options)
    archive_job.run(params, eager)
    status: Any = find_status(tmp_path / "lake", "orders")
    assert (status.job, status.topic, status.number, status.lag) == ("archive", "orders", 2, 0)
    assert status.now.committed == 20
    assert status.retention_s, "brokers say how long they keep messages"
