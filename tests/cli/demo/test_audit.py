from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from roquet.cli.demo import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spark_suite]

Row = tuple[str, int, int, int, str | None, str, int]

GOOD: Sequence[Row] = (
    ("broker-a", 0, 0, 0, "N1", "UA", 5),
    ("broker-a", 0, 1, 2, "N1", "UA", 6),
    ("broker-b", 0, 0, 1, "N2", "AA", 5),
    ("broker-b", 0, 1, 3, None, "AA", 5),
)


def table(spark: "SparkSession", rows: Sequence[Row]) -> "DataFrame":
    return spark.createDataFrame(
        list(rows),
        "broker string, queue_id int, queue_offset bigint, row bigint, tailnum string, "
        "carrier string, hour int",
    )


def test_a_whole_table_has_no_fault(spark: "SparkSession") -> None:
    facts = audit.table_facts(table(spark, GOOD))
    assert (facts.rows, facts.distinct, facts.gaps, facts.disordered) == (4, 4, 0, 0)
    assert facts.carriers == {"UA": {5: 1, 6: 1}, "AA": {5: 2}}


def test_a_row_that_was_written_twice_shows(spark: "SparkSession") -> None:
    facts = audit.table_facts(table(spark, [*GOOD, GOOD[0]]))
    assert (facts.rows, facts.distinct) == (5, 4)


def test_an_offset_that_is_missing_is_a_gap(spark: "SparkSession") -> None:
    assert audit.table_facts(table(spark, GOOD[1:])).gaps == 1
    assert (
        audit.table_facts(table(spark, [GOOD[0], ("broker-a", 0, 4, 9, "N1", "UA", 7)])).gaps == 3
    )


def test_an_aircraft_out_of_order_shows(spark: "SparkSession") -> None:
    swapped = [("broker-a", 0, 0, 2, "N1", "UA", 5), ("broker-a", 0, 1, 0, "N1", "UA", 6)]
    assert audit.disordered_aircraft(table(spark, swapped)) == 1


def test_an_aircraft_in_two_queues_shows(spark: "SparkSession") -> None:
    parted = [("broker-a", 0, 0, 0, "N1", "UA", 5), ("broker-a", 1, 0, 2, "N1", "UA", 6)]
    assert audit.disordered_aircraft(table(spark, parted)) == 1


def test_flights_without_an_aircraft_have_no_order(spark: "SparkSession") -> None:
    anywhere = [("broker-a", 0, 0, 2, None, "UA", 5), ("broker-b", 1, 0, 0, None, "UA", 6)]
    assert audit.disordered_aircraft(table(spark, anywhere)) == 0


def test_an_empty_table_holds_nothing(spark: "SparkSession") -> None:
    facts = audit.table_facts(table(spark, []))
    assert (facts.rows, facts.distinct, facts.gaps, facts.disordered) == (0, 0, 0, 0)
