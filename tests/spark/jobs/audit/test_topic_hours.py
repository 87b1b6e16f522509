"""Messages of a topic by hour, without reading them."""

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.audit.findings import HOUR_MS
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.audit.topic_hours import hour_starts, search_hours
from roquet.spark.options import SourceOptions

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import Topic


@given(st.dictionaries(st.integers(0, 200), st.integers(1, 9), min_size=1))
def test_the_hours_with_messages_are_found(counts: dict[int, int]) -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return sum(count for known, count in counts.items() if known < hour)

    hours = list(search_hours(at, (min(counts), 0), (201, sum(counts.values()))))
    assert hours == [(hour, at(hour)) for hour in sorted(counts)]


def test_a_quiet_time_costs_few_questions() -> None:
    probed = list[int]()

    def at(hour: int) -> int:
        probed.append(hour)
        return 5 if hour <= 70_000 else 10

    assert list(search_hours(at, (0, 0), (100_000, 10))) == [(0, 0), (70_000, 5)]
    assert len(probed) < 60


def test_a_topic_is_counted_by_hour(topic: "Topic") -> None:
    topic.send(5)
    cluster = ClusterClient(SourceOptions(namesrv=(topic.namesrv,), topics=(topic.name,)))
    queue = (topic.name, "broker-a", 0)
    [(hour, offset)] = hour_starts(cluster, queue, (0, 5))[:1]
    assert offset == 0
    assert abs(hour - cluster.now_ms() // HOUR_MS) <= 1
    assert hour_starts(cluster, queue, (5, 5)) == ()
