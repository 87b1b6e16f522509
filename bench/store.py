"""The store alone: append, read, index, recover; prints one JSON object and saves rows.

python -m bench.store --count 300000 --body 128 --recover-gb 3
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.lib.rows import Row, save
from roquet.store.store import Draft, Store
from roquet.wire.records.record import BatchColumns, encode_properties

BATCH = 32


def timed(work: Callable[[], int]) -> dict[str, float]:
    """How long each thing took, and what of it was the processor's."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "per_s": round(count / wall),
        "us": round(wall / count * 1e6, 3),
        "cpu_us": round(cpu / count * 1e6, 3),
    }


def drafts(count: int, body: bytes) -> list[Draft]:
    """Messages as a Java producer sends them: a unique key, a key, a tag."""
    return [
        Draft(
            topic="bench",
            queue_id=n & 3,
            body=body,
            properties=encode_properties(
                {
                    "KEYS": f"key{n}",
                    "UNIQ_KEY": f"7F0000010000{0x78BF0000:08X}{n:012X}",
                    "WAIT": "true",
                    "TAGS": "TagA",
                }
            ),
            tag_code=2598919,
            born_ms=1,
        )
        for n in range(count)
    ]


def parts_of(batch: Sequence[Draft]) -> BatchColumns:
    """The messages of a batch, column by column."""
    return BatchColumns(
        flags=[draft.flag for draft in batch],
        bodies=[draft.body for draft in batch],
        properties=[draft.properties for draft in batch],
        tag_codes=[draft.tag_code for draft in batch],
    )


def read_all(store: Store, count_max: int) -> int:
    """Every message of every queue, so many at a time."""
    found = 0
    for queue_id in store.queue_ids("bench"):
        offset, end = store.bounds("bench", queue_id)
        while offset < end:
            part = store.read("bench", queue_id, offset, count_max=count_max, bytes_max=1 << 24)
            offset, found = part.next_offset, found + part.count
    return found


def dispatch_all(store: Store) -> int:
    """The key index brought up to the log."""
    return sum(iter(lambda: store.dispatch(1000), 0))


def measure(directory: Path, count: int, body_size: int) -> dict[str, Any]:
    """One store through all it can do."""
    now = 1_700_000_000_000
    sent = drafts(count, bytes(body_size))
    store = Store.open(directory, now_ms=now)

    def append() -> int:
        for draft in sent:
            store.append(draft, now)
        return count

    batches = [parts_of(sent[n : n + BATCH]) for n in range(0, count, BATCH)]

    def append_batches() -> int:
        for batch in batches:
            store.append_batch(sent[0], batch, now)
        return count

    results: dict[str, Any] = {"append": timed(append)}
    results["flush_ms"] = milliseconds(store.flush_log)
    results["dispatch"] = timed(lambda: dispatch_all(store))
    results["read_32"] = timed(lambda: read_all(store, 32))
    results["append_batch_32"] = timed(append_batches)
    results["read_10000"] = timed(lambda: read_all(store, 10_000))
    results["close_ms"] = milliseconds(lambda: store.close(now))
    results["open_closed_ms"] = milliseconds(lambda: Store.open(directory, now_ms=now).close(now))
    return results


def recover(directory: Path, gigabytes: float, batches: int) -> dict[str, Any]:
    """Bodies of 1 KiB, a checkpoint after so many batches of 1,000; then the process was killed."""
    now, sent = 1_700_000_000_000, drafts(1000, bytes(1024))
    batch = parts_of(sent)
    store = Store.open(directory, now_ms=now)
    while store.end_position < gigabytes * (1 << 30):
        store.flush_all(now)
        for _ in range(batches):
            store.append_batch(sent[0], batch, now)
    # What a killed process leaves behind: the files as they are, and the mark that it was there.
    killed = directory.with_name(directory.name + "-killed")
    killed.mkdir()
    for path in directory.iterdir():
        (killed / path.name).symlink_to(path) if path.is_dir() else shutil.copy(path, killed)
    found: list[Store] = []
    milliseconds_open = milliseconds(lambda: found.append(Store.open(killed, now_ms=now)))
    return {
        "gigabytes": round(found[0].end_position / (1 << 30), 2),
        "records_scanned": batches * len(sent),
        "open_ms": milliseconds_open,
    }


def milliseconds(work: Callable[[], object]) -> float:
    """How long something took."""
    start = time.perf_counter()
    work()
    return round((time.perf_counter() - start) * 1000, 1)


def rows(results: dict[str, Any]) -> list[Row]:
    """Microseconds of each step's CPU, and milliseconds of what is done once."""
    table: list[Row] = []
    for name, value in results.items():
        if name == "after_kill":
            title = f"store: open with {value['gigabytes']} GB after a kill"
            table.append(Row(title, "ms", value["open_ms"]))
        elif isinstance(value, dict):
            table.append(Row(f"store: {name}, CPU a message", "us", value["cpu_us"]))
        else:
            table.append(Row(f"store: {name.removesuffix('_ms')}", "ms", value))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--recover-gb", type=float, default=3)
    parser.add_argument("--recover-batches", type=int, default=100, help="between checkpoints")
    parser.add_argument("--out", type=Path, default=Path("build/bench-store.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        results = measure(directory / "a", options.count, options.body)
        results["after_kill"] = recover(
            directory / "b", options.recover_gb, options.recover_batches
        )
    sys.stdout.write(json.dumps({"store": results}, indent=1) + "\n")
    save(rows(results), options.out)


if __name__ == "__main__":
    main()
