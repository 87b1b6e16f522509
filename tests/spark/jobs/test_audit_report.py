"""All sides in one report."""

from roquet.spark.jobs.audit_report import Report, RowGap, Surplus, compared, placed, row_gaps
from roquet.spark.jobs.coverage import Runs
from roquet.spark.jobs.findings import Queue
from roquet.spark.jobs.footprint import Footprint, Found
from roquet.spark.jobs.places import Place
from roquet.spark.tables.looking import Held

HELD = Held(topic="orders", kind="parquet", paths=(), begin={("orders", "a", 0): 0}, number=3)
RUNS = Runs([0, 3], [2, 5], [1, 2])
FOUND = Found(
    queues=(Footprint(name="a", runs=RUNS, hours={7: 6}, born={6: 5, 9: 1}),),
    writers=(Footprint(name="q/1/0", runs=Runs([0, 1], [1, 2], [1, 2])),),
    rows=6,
)
QUEUES = [Queue(broker="a", queue_id=0, runs=RUNS, begin=0, end=5, first=0, next=8)]


def report(counted: dict[int, int] | None = None) -> Report:
    return compared("lake", HELD, FOUND, QUEUES, counted)


def test_a_report_has_what_all_sides_say() -> None:
    found = report()
    assert (found.topic, found.table, found.number, found.rows) == ("orders", "lake", 3, 6)
    assert (found.in_topic, found.waiting, found.begin_known) == (8, 3, True)
    assert (found.count("missing"), found.count("doubled"), found.count("lost")) == (1, 2, 0)
    assert found.producer == ()
    assert not found.is_clean


def test_producers_are_compared_by_the_hours_in_which_they_made_messages() -> None:
    assert report({6: 5, 9: 1}).producer == ()
    assert report({6: 5}).producer == (Surplus(first=9, last=9, more=1),)


def test_a_whole_table_is_clean() -> None:
    runs = Runs([0], [5], [1])
    queue = Queue(broker="a", queue_id=0, runs=runs, begin=0, end=5, first=0, next=5)
    found = Found(queues=(Footprint(name="a", runs=runs),), rows=5)
    assert compared("lake", HELD, found, [queue], None).is_clean


def test_doubled_rows_get_their_messages() -> None:
    other = Place("q/1/0", 5, "a", 0, 9)
    here = [Place("q/1/0", 1, "a", 1, 4), Place("q/1/0", 1, "a", 0, 3)]
    [gap] = placed(report(), [other, *here]).row_gaps
    assert (gap.what, gap.rows, gap.places) == ("doubled", "1", tuple(sorted(here)))
    assert placed(report(), []) == report()


def test_rows_of_the_sink_are_numbered_from_zero() -> None:
    found = Found(
        writers=(
            Footprint(name="q/1/0", runs=Runs([1, 4, 6], [4, 5, 7], [1, 2, 1])),
            Footprint(name="q/1/1", runs=Runs([0], [9], [1])),
        )
    )
    assert row_gaps(found) == [
        RowGap(what="missing", writer="q/1/0", start=0, end=1),
        RowGap(what="doubled", writer="q/1/0", start=4, end=5, times=2),
        RowGap(what="missing", writer="q/1/0", start=5, end=6),
    ]
