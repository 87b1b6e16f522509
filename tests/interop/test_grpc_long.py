"""Official clients of RocketMQ 5 through what goes on for long: left out of `make ci`."""

import asyncio
import contextlib
import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.interop.grpc_group import (
    LISTENING,
    add_group,
    add_topics,
    clients,
    dead_letters,
    installed,
    proxied,
    proxy_process,
)

from harness.grpc_clients import GrpcClient
from harness.java_client import until
from harness.servers import DevServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


async def test_message_groups_stay_in_order_when_two_members_share_them(tmp_path: Path) -> None:
    names = installed(LISTENING)
    async with proxied() as (running, address), clients(names * 2, address, tmp_path) as members:
        for name in names:
            await add_topics(running.namesrv_addr, {f"In{name}": "FIFO"})
            await add_group(
                running.namesrv_addr, f"of-{name}", f"In{name}", consume_message_orderly=True
            )
        await asyncio.gather(*(it.push(f"of-{it.name}", f"In{it.name}") for it in members))
        for number in range(10):
            for letter in "abcdef":
                for it in members[: len(names)]:
                    body = f"fails 1 b {number}" if (letter, number) == ("b", 4) else number
                    text = body if isinstance(body, str) else f"ok 0 {letter} {number}"
                    await it.send(f"In{it.name}", text, "FIFO", letter)

        def handled(name: str) -> list[tuple[GrpcClient, str]]:
            return [(it, h.body) for it in members if it.name == name for h in it.handled]

        await until(lambda: all(len(handled(name)) == 61 for name in names), 120)
        for name in names:
            by_group: dict[str, list[int]] = defaultdict(list)
            for _, body in handled(name):
                by_group[body.split()[2]].append(int(body.split()[3]))
            b_again = [*range(5), *range(4, 10)]
            assert by_group == {
                letter: b_again if letter == "b" else [*range(10)] for letter in "abcdef"
            }, name


async def test_a_slow_listener_keeps_its_message(tmp_path: Path) -> None:
    names = installed(LISTENING)
    async with proxied() as (running, address), clients(names, address, tmp_path) as members:
        for it in members:
            await add_group(running.namesrv_addr, f"slow-{it.name}", "NORM")
            await it.push(f"slow-{it.name}", "NORM")
        await members[0].send("NORM", "slow 75 s")
        await until(lambda: all(it.finished for it in members), 120)
        await asyncio.sleep(10)
        assert [len(it.handled) for it in members] == [1] * len(members)


async def test_an_ordered_message_that_always_fails_is_dead_and_the_next_one_comes(
    tmp_path: Path,
) -> None:
    names = installed(LISTENING)
    async with proxied() as (running, address), clients(names, address, tmp_path) as members:
        namesrv = running.namesrv_addr
        for it in members:
            await add_group(
                namesrv, f"d-{it.name}", "FIFOT", retry_max_times=1, consume_message_orderly=True
            )
            await it.push(f"d-{it.name}", "FIFOT")
        await members[0].send("FIFOT", "fails 9 times", "FIFO", "one")
        await members[0].send("FIFOT", "next", "FIFO", "one")
        expected = [(1, "fails 9 times"), (2, "fails 9 times"), (1, "next")]
        await until(lambda: all(len(it.handled) == 3 for it in members), 90)
        assert {it.name: [each[1:] for each in it.handled] for it in members} == dict.fromkeys(
            names, expected
        )
        for it in members:
            assert await dead_letters(namesrv, f"d-{it.name}") == ["fails 9 times"]


async def test_a_simple_consumer_gets_what_it_did_not_acknowledge_again(tmp_path: Path) -> None:
    names = installed()
    async with proxied() as (running, address), clients(names, address, tmp_path) as members:
        await members[0].send("NORM", "again")
        for it in members:
            group = await add_group(running.namesrv_addr, f"again-{it.name}", "NORM")
            end = "change" if it.name in LISTENING else "nothing"  # Rust's changes no such time
            assert await it.receive(group, "NORM", end=end) == ["again"], it.name
        found: dict[str, list[str]] = defaultdict(list)
        async with asyncio.timeout(90):
            while len(found) < len(members):
                for it in members:
                    if bodies := await it.receive(f"again-{it.name}", "NORM"):
                        found[it.name] += bodies
        assert set(map(tuple, found.values())) == {("again",)}


async def test_nothing_acknowledged_is_lost_when_the_proxy_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    names = installed()
    with DevServer(tmp_path) as dev, proxy_process(tmp_path, dev.address) as proxy:
        await add_topics(dev.address, {f"K{name}": None for name in names})
        async with clients(names, proxy.address, tmp_path) as members:
            for it in members:
                group = await add_group(dev.address, f"k-{it.name}", f"K{it.name}")
                if it.name in LISTENING:
                    await it.push(group, f"K{it.name}")
            stop = asyncio.Event()
            sending = [asyncio.create_task(keep_sending(it, stop)) for it in members]
            for _ in range(3):
                await asyncio.sleep(random.uniform(3, 6))
                proxy.kill()
                await asyncio.sleep(1)
                await asyncio.to_thread(proxy.start)
            await asyncio.sleep(5)
            stop.set()
            sent = await asyncio.gather(*sending)
            # What the killed proxies had given out comes within a minute.
            lost = await asyncio.gather(*map(still_missing, members, sent))
    assert not any(lost), dict(zip(names, lost, strict=True))
    assert all(len(bodies) > 20 for bodies in sent), dict(zip(names, map(len, sent), strict=True))


async def keep_sending(it: GrpcClient, stop: asyncio.Event) -> set[str]:
    """Send until it is over; returns what was acknowledged."""
    acknowledged = set()
    number = 0
    while not stop.is_set():
        number += 1
        try:
            await it.send(f"K{it.name}", f"body {number}")
            acknowledged.add(f"body {number}")
        except (RuntimeError, TimeoutError):
            pass
        await asyncio.sleep(0.05)
    return acknowledged


async def still_missing(it: GrpcClient, sent: set[str], seconds: float = 90) -> set[str]:
    """What has not come to a client's consumer after that time at most."""
    group, topic, read = f"k-{it.name}", f"K{it.name}", set[str]()

    async def is_complete() -> bool:
        if it.name not in LISTENING:
            read.update(await it.receive(group, topic))
        return not sent - read - set(it.bodies(group))

    with contextlib.suppress(TimeoutError):
        await until(is_complete, seconds)
    return sent - read - set(it.bodies(group))
