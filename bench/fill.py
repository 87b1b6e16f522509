"""Fills a data directory with messages through the store itself, for benchmarks of start and read.

`--die` ends with SIGKILL in the middle of appending, as a killed broker would.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from roquet.store.store import Draft, Store

FLUSH_EVERY = 100_000
"""Messages between two flushes, about a second's worth of a busy broker."""

POOL_BYTES = 16 * 1024 * 1024
"""Random letters that different bodies are cut from; more than a compressor looks back."""

STRIDE = 7_919
"""A prime: keys of messages that follow one another are far apart, and each key comes in turn."""


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


TOMBSTONE_EVERY = 7
"""With `--tombstones` each of so many messages deletes its key."""


def properties(number: int, keys: int, *, tombstones: bool) -> bytes:
    """The properties of a message, with a key if there are some."""
    text = b"UNIQ_KEY\x017F0000010001000000000000%08X\x02WAIT\x01true\x02" % number
    if keys:
        text += b"KEYS\x01k%d\x02" % (number * STRIDE % keys)
    if tombstones and not number % TOMBSTONE_EVERY:
        text += b"tombstone\x01true\x02"
    return text


def letters(count: int) -> bytes:
    """Random capital letters, as Kafka's own benchmark sends them."""
    return os.urandom(count).translate(bytes(65 + number % 26 for number in range(256)))


def main() -> None:
    """Append until the wanted bytes are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", type=int, default=0, help="of bodies")
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--size", type=int, default=1024, help="of one body")
    parser.add_argument("--topic", default="Fill")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--distinct", action="store_true", help="bodies differ")
    parser.add_argument("--keys", type=int, default=0, help="give messages one of so many keys")
    parser.add_argument("--tombstones", action="store_true", help="some delete their key")
    parser.add_argument("--die", action="store_true")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    store = Store.open(args.directory, now_ms=now_ms(), pid=os.getpid())
    body, pool = os.urandom(args.size), letters(POOL_BYTES) if args.distinct else b""
    host = b"\x7f\0\0\x01\0\0*\x9f"
    count = args.messages or args.bytes // args.size
    for number in range(count):
        if pool:
            begin = number * (args.size + 1) % (len(pool) - args.size)
            body = pool[begin : begin + args.size]
        store.append(
            Draft(
                topic=args.topic,
                queue_id=number % args.queues,
                body=body,
                properties=properties(number, args.keys, tombstones=args.tombstones),
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
