"""Official clients of RocketMQ 5 through what goes on for long: left out of `make ci`."""

import asyncio
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
    keep_sending,
    proxied,
    proxy_process,
    still_missing,
)

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
        await asyncio.sleep(7)  # they ask for their queues every five seconds
        for number in range(10):
            for letter in "abcdef":
                word = "fails" if (letter, number) == ("b", 4) else "passes"
                for it in members[: len(names)]:
                    await it.send(f"In{it.name}", f"{word} 1 {letter} {number}", "FIFO", letter)

        def handled(name: str) -> list[str]:
            """Bodies by both members of a client, in the order of time."""
            both = [each for it in members if it.name == name for each in it.handled]
            return [each.body for each in sorted(both, key=lambda each: each.at_s)]

        await until(lambda: all(len(handled(name)) == 61 for name in names), 90)
        for name in names:
            by_group: dict[str, list[int]] = defaultdict(list)
            for body in handled(name):
                _, _, key, at = body.split()
                by_group[key].append(int(at))
            again = {"b": [*range(5), *range(4, 10)]}
            assert by_group == {letter: [*range(10)] for letter in "abcdef"} | again, name
        assert all(it.handled for it in members)


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
        for it in members:
            tries = [each[1:3] for each in it.handled]
            if it.name == "go":  # 5.1.4 goes on with the batch while a failed message waits
                tries.sort(key=expected.index)
            assert tries == expected, it.name
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


async def test_nothing_acknowledged_is_lost_when_the_proxy_is_killed_and_stopped(
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
            sending = [asyncio.create_task(keep_sending(it, f"K{it.name}", stop)) for it in members]
            for end in (proxy.kill, proxy.stop, proxy.kill):
                await asyncio.sleep(random.uniform(3, 6))
                await asyncio.to_thread(end)
                await asyncio.sleep(1)
                await asyncio.to_thread(proxy.start)
            await asyncio.sleep(5)
            stop.set()
            sent = await asyncio.gather(*sending)
            # What the killed proxies had given out comes within a minute.
            lost = await asyncio.gather(
                *(
                    still_missing(it, f"k-{it.name}", f"K{it.name}", bodies)
                    for it, bodies in zip(members, sent, strict=True)
                )
            )
    assert not any(lost), dict(zip(names, lost, strict=True))
    assert all(len(bodies) > 20 for bodies in sent), dict(zip(names, map(len, sent), strict=True))
