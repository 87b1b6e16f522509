"""The balance lab measured: histories a second for each strategy, and what a second core gives.

    python -m bench.lab --histories 4000

Histories of 8 queues, 20 changes and 200 messages (the scenario `churn`), played by Spark on this
machine; the rows go nowhere. Each figure is the best of some runs after one that warms the workers
up: what else runs here does not count. AVG is also played on one core.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.lib.rows import Row, save, show
from roquet.lab import spark_job
from roquet.lab.decisions import NAMES
from roquet.lab.scenario import PRESETS
from roquet.lab.study import Study
from roquet.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = "AVG"
GOAL = 1_000
RATIO = 1.7
WARM = 64


def rate(spark: "SparkSession", strategy: str, histories: int, repeats: int) -> float:
    """Histories a second."""
    study = Study(
        scenarios=(PRESETS["churn"],), strategies=(strategy,), histories=histories, seed=1
    )
    best = 0.0
    for turn in range(repeats + 1):
        count = histories if turn else min(WARM, histories)
        began = time.perf_counter()
        spark_job.table(spark, study, range(count)).write.format("noop").mode("overwrite").save()
        if turn:
            best = max(best, count / (time.perf_counter() - began))
    return best


def measure(given: argparse.Namespace) -> list[Row]:
    """One core, then two."""
    rates: dict[tuple[str, int], float] = {}
    for cores, names in ((1, [FIRST]), (2, given.strategies.split(","))):
        spark = session("lab", f"local[{cores}]", **{"spark.ui.showConsoleProgress": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        for name in names:
            rates[name, cores] = rate(spark, name, given.histories, given.repeats)
        spark.stop()
    table = [
        Row(f"lab, two cores: {name}", "hist/s", found, None)
        for (name, cores), found in rates.items()
        if cores == 2
    ]
    for row in table:
        if row.work.endswith(f": {FIRST}"):
            row.goal = f">= {GOAL}"
    if (FIRST, 2) in rates:
        ratio = rates[FIRST, 2] / rates[FIRST, 1]
        table.append(
            Row(f"lab, {FIRST}: local[2] over local[1]", "times", ratio, None, f">= {RATIO}")
        )  # fmt: skip
    return table


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=4_000, help="of each strategy and run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--strategies", default=",".join(NAMES))
    parser.add_argument("--out", type=Path, default=Path("build/bench-lab.json"))
    given = parser.parse_args()
    table = measure(given)
    show(table)
    save(table, given.out)


if __name__ == "__main__":
    main()
