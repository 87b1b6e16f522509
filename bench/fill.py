"""Fills a data directory with messages through the store itself, for benchmarks of start and read.

`--die` ends with SIGKILL in the middle of appending, as a killed broker would.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from roquet.store.store import Draft, Store

FLUSH_EVERY = 100_000
"""Messages between two flushes, about a second's worth of a busy broker."""


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def main() -> None:
    """Append until the wanted bytes are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", type=int, default=0, help="of bodies")
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--size", type=int, default=1024, help="of one body")
    parser.add_argument("--topic", default="Fill")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--die", action="store_true")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    store = Store.open(args.directory, now_ms=now_ms(), pid=os.getpid())
    body = os.urandom(args.size)
    host = b"\x7f\0\0\x01\0\0*\x9f"
    count = args.messages or args.bytes // args.size
    for number in range(count):
        store.append(
            Draft(
                topic=args.topic,
                queue_id=number % args.queues,
                body=body,
                properties=b"UNIQ_KEY\x017F0000010001000000000000%08X\x02WAIT\x01true\x02" % number,
                born_host=host,
                store_host=host,
            ),
            now_ms(),
        )
        if number % FLUSH_EVERY == 0:
            while store.dispatch(100_000):
                pass
            store.flush_all(now_ms())
    if args.die:
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    while store.dispatch(100_000):
        pass
    store.close(now_ms())


if __name__ == "__main__":
    main()
