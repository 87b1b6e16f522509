"""Rows a second from a topic into a Parquet, a Delta and an Iceberg table; prints JSON.

    python bench/archive.py FOLDER --messages 4000000

The broker is on the same machine. `--columns` takes those that Kafka's source has as well, so that
the figure stands beside Kafka's; `all` are the columns of an archive when nobody chooses.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tools"), str(HERE)]

from filled import filled  # noqa: E402

TOPIC = "ArchiveBench"
PASSES = 3
KINDS = ("parquet", "delta", "iceberg")
COLUMNS = {
    "all": (),
    "kafka": ("key", "body", "topic", "broker", "queue_id", "queue_offset", "stored_at"),
}


def main() -> None:
    """Each kind some times; the best counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--columns", choices=COLUMNS, default="kafka")
    parser.add_argument("--passes", type=int, default=PASSES)
    args = parser.parse_args()
    with filled(args.folder, TOPIC, args.messages, args.size) as served:
        from roquet.spark.jobs.archive import Params, run
        from roquet.spark.jobs.running import spark_for

        spark = spark_for("bench", "local[2,4]")
        found = {}
        for kind in args.kind or KINDS:
            best = 0.0
            for _ in range(args.passes):
                table = args.folder / kind
                shutil.rmtree(table, ignore_errors=True)
                params = Params(
                    topic=TOPIC,
                    target=str(table),
                    kind=kind,
                    options={"namesrv": served.namesrv},
                    columns=COLUMNS[args.columns],
                )
                began = time.monotonic()
                done = run(params, lambda: spark)
                seconds = time.monotonic() - began
                assert done.rows == args.messages, f"{done.rows} of {args.messages} came"
                best = max(best, done.rows / seconds)
            found[kind] = round(best)
        spark.stop()
    print(json.dumps({"columns": args.columns, "rows_per_second": found}))


if __name__ == "__main__":
    main()
