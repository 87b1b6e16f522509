"""Cost of a whole group's assignment: milliseconds for each strategy, as JSON and as rows.

10,000 queues on 20 brokers and 500 members (RENDEZVOUS: 1,000 and 50), shuffled as a route may be.
STICKY and LAG_WEIGHTED answer to a member that joins, with a lag of which a tenth of the queues
has most. The sorting of queues and members is part of it.
"""

import argparse
import json
import platform
import random
import timeit
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import process_time

from bench.lib.rows import Row, bound, save
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import (
    STRATEGIES,
    QueueOwners,
    allocate,
    lag_weighted,
    machine_room,
    nearby,
    sticky,
)

BROKERS = 20
ROOMS = 4
SEED = 4

GOALS = {
    "AVG": 20,
    "AVG_BY_CIRCLE": 20,
    "CONSISTENT_HASH": 200,
    "BOUNDED_LOAD": 200,
    "RENDEZVOUS": 20,
    "STICKY": 20,
    "LAG_WEIGHTED": 20,
}
"""Milliseconds, as the issue sets them."""


def queues_of(count: int, rng: random.Random) -> list[MessageQueue]:
    names = [f"room{n % ROOMS}@broker-{n:02}" for n in range(BROKERS)]
    queues = [MessageQueue("Orders", names[n % BROKERS], n // BROKERS) for n in range(count)]
    rng.shuffle(queues)
    return queues


def members_of(count: int, rng: random.Random) -> list[str]:
    members = [f"room{n % ROOMS}@192.168.{n // 250}.{n % 250}@{4000 + n}" for n in range(count)]
    rng.shuffle(members)
    return members


def lags(queues: Sequence[MessageQueue], rng: random.Random) -> dict[MessageQueue, int]:
    return {q: rng.randrange(1_000_000 if rng.random() < 0.1 else 1_000) for q in queues}


def owners_before(queues: Sequence[MessageQueue], members: Sequence[str]) -> QueueOwners:
    """Owners of the queues before the last member joined."""
    shares = allocate(queues, members[:-1])
    return {queue: member for member, share in shares.items() for queue in share}


def steps(queue_count: int, member_count: int) -> Mapping[str, Callable[[], object]]:
    """Every strategy by its name."""
    rng = random.Random(SEED)
    queues, members = queues_of(queue_count, rng), members_of(member_count, rng)
    lag, owners = lags(queues, rng), owners_before(queues, members)
    settled = lag_weighted(queues, members[:-1], owners, lag)
    held = {queue: member for member, share in settled.items() for queue in share}
    named = {**STRATEGIES, "MACHINE_ROOM": machine_room([f"room{n}" for n in range(ROOMS)])}
    named["MACHINE_ROOM_NEARBY-AVG"] = nearby(STRATEGIES["AVG"], room_of, room_of)
    return {
        **{name: partial(allocate, queues, members, strategy) for name, strategy in named.items()},
        "STICKY": partial(sticky, queues, members, owners),
        "LAG_WEIGHTED": partial(lag_weighted, queues, members, held, lag),
        "LAG_WEIGHTED, nobody had any": partial(lag_weighted, queues, members, {}, lag),
        "LAG_WEIGHTED, from AVG": partial(lag_weighted, queues, members, owners, lag),
    }


def room_of(name: str) -> str:
    return name.partition("@")[0]


def measured(step: Callable[[], object], repeats: int) -> float:
    """Milliseconds of this processor, at its best: what else runs here does not count."""
    seconds = timeit.repeat(step, timer=process_time, number=1, repeat=repeats)
    return round(min(seconds) * 1e3, 2)


def rows(found: Mapping[str, float]) -> list[Row]:
    """A line for each strategy; some have a goal."""
    return [
        bound(f"assignment of a group: {name}", "ms", value, GOALS[name])
        if name in GOALS
        else Row(f"assignment of a group: {name}", "ms", value)
        for name, value in found.items()
    ]


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000, help="RENDEZVOUS: a tenth")
    parser.add_argument("--members", type=int, default=500, help="RENDEZVOUS: a tenth")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("build/bench-balance.json"))
    options = parser.parse_args()
    repeats = options.repeats
    large = steps(options.queues, options.members)
    small = steps(options.queues // 10, options.members // 10)
    found = {n: measured(step, repeats) for n, step in large.items() if n != "RENDEZVOUS"}
    found["RENDEZVOUS"] = measured(small["RENDEZVOUS"], repeats)
    print(
        json.dumps(
            {
                "python": platform.python_version(),
                "milliseconds": found,
                "goals": GOALS,
                "met": all(found[name] <= goal for name, goal in GOALS.items()),
            }
        )
    )
    save(rows(found), options.out)


if __name__ == "__main__":
    main()
