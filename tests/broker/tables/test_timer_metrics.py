from pathlib import Path

from roquet.broker.tables.saved_table import TableFile
from roquet.broker.tables.timer_metrics import TimerMetrics
from roquet.model.topic import DataVersion
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.calls.timer import TimerMetricsBody, TopicTimerCount

PATH = Path("/config/timermetrics")
GENUINE = (
    b'{"dataVersion":{"counter":6,"stateVersion":0,"timestamp":1795247573069},'
    b'"timingCount":{"TopicB":{"count":2,"timeStamp":1795247573069}}}'
)


def test_messages_are_counted_by_topic() -> None:
    timings = TimerMetrics(None)
    timings.add("orders", 1, 5)
    timings.add("orders", 1, 6)
    timings.add("bills", 1, 7)
    assert (timings.get("orders"), timings.get("bills"), timings.get("none")) == (2, 1, 0)
    assert timings.total == 3
    timings.add("orders", -1, 8)
    assert timings.content().timing_count["orders"] == TopicTimerCount(count=1, time_stamp=8)


def test_more_may_be_taken_back_for_a_while_than_wait() -> None:
    timings = TimerMetrics(None)
    timings.add("orders", -1, 5)
    assert (timings.get("orders"), timings.total) == (0, 0)
    timings.add("orders", 1, 6)
    timings.add("orders", 1, 6)
    assert timings.get("orders") == 1


def test_an_apache_file_is_continued() -> None:
    files = MemoryFiles()
    files.replace(PATH, GENUINE)
    timings = TimerMetrics(TableFile(files, PATH))
    assert timings.get("TopicB") == 2
    timings.add("TopicB", -1, 1_795_247_600_000)
    timings.touch(1_795_247_600_000)
    timings.save()
    again = TimerMetrics(TableFile(files, PATH))
    assert (again.get("TopicB"), again.version.counter) == (1, 7)


def test_leaps_of_the_clock_are_known_to_the_next_process() -> None:
    files = MemoryFiles()
    timings = TimerMetrics(TableFile(files, PATH))
    timings.leapt(())
    assert not timings.unsaved
    timings.leapt(((5, 70_000), (80_000, 900_000)))
    assert timings.unsaved
    timings.touch(6)
    timings.save()
    assert TimerMetrics(TableFile(files, PATH)).leaps == ((5, 70_000), (80_000, 900_000))


def test_the_counts_of_a_master_replace_the_own_ones_but_not_the_leaps_of_the_clock() -> None:
    metrics = TimerMetrics(None)
    metrics.add("own", 3, 1)
    metrics.leapt(((1, 2),))
    table = TimerMetricsBody(
        timing_count={"a": TopicTimerCount(count=4)}, data_version=DataVersion(counter=3)
    )
    metrics.copy(table)
    assert (metrics.get("own"), metrics.get("a"), metrics.leaps) == (0, 4, ((1, 2),))
    assert metrics.unsaved
    metrics.save()
    metrics.copy(table)
    assert not metrics.unsaved
