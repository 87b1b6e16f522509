"""Switches of a group's master in virtual time: it is killed, stopped, silent, or replaced."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from tests.conversation.failover_group import CLIENT, PORT, TOPIC, Group, R

from roquet.net.channel import Channel
from roquet.net.router import Router
from roquet.wire.call import Call
from roquet.wire.records.record import Record, decode_many

ASIDE_MS: Final = 7
"""Ms before a kill: it comes when no request has just begun."""

Switch = Callable[[Group], Awaitable[int]]
"""Lets another broker lead; returns its number once two brokers or more are in sync."""


async def kill(running: Group) -> int:
    """Kill the master's process; it stays away."""
    number = running.master()
    assert number is not None
    await running.loop.clock.sleep(ASIDE_MS)
    await running.kill(number)
    return await running.settled(2)


async def stop(running: Group) -> int:
    """Stop the master in good order; it stays away."""
    number = running.master()
    assert number is not None
    await running.loop.clock.sleep(ASIDE_MS)
    server = running.brokers.pop(number)
    await running.hosts.run(running.host(number), server.__aexit__(None, None, None))
    return await running.settled(2)


async def silence(running: Group) -> int:
    """Part the master from everybody until another one leads; it comes back as a replica."""
    number = running.master()
    assert number is not None
    running.part(number)
    await running.until(lambda: running.master() not in (None, number), 30)
    running.network.heal()
    return await running.settled(3)


async def designate(running: Group, number: int = 2) -> int:
    """Let an operator name another master; the old one becomes its replica."""
    await running.hosts.run(CLIENT, running.elect(number))
    await running.until(lambda: running.master() == number)
    return await running.settled(3)


async def there_and_back(running: Group) -> int:
    """Let another broker lead for a moment, and the first one again."""
    await designate(running, 2)
    return await designate(running, 1)


SWITCHES: Final[Mapping[str, Switch]] = MappingProxyType(
    {"killed": kill, "silent": silence, "there and back": there_and_back}
)


async def ask(running: Group, host: str, port: int, call: Call[R], timeout_ms: int = 30_000) -> R:
    """The reply of a server; run it on the client's host."""
    async with await Channel.connect(host, port, clock=running.loop.clock) as channel:
        return await channel.call(call, timeout_ms)


async def asked(running: Group, number: int, call: Call[R]) -> R:
    """The reply of a broker to a client."""
    return await running.hosts.run(CLIENT, ask(running, running.host(number), PORT, call))


async def connect(running: Group, number: int, router: Router | None = None) -> Channel:
    """A client's connection to a broker."""
    connecting = Channel.connect(
        running.host(number), PORT, router=router, clock=running.loop.clock
    )
    return await running.hosts.run(CLIENT, connecting)


def records(running: Group, number: int, topic: str = TOPIC) -> list[Record]:
    """Records of the first queue of a topic that consumers of a broker see."""
    store = running.brokers[number].broker.log.store
    offset, end = store.bounds(topic, 0)
    found: list[Record] = []
    while offset < end:
        part = store.read(topic, 0, offset)
        assert part.next_offset > offset
        for view in part.parts:
            found += decode_many(view)
        offset = part.next_offset
    return found


def bodies(running: Group, number: int, topic: str = TOPIC) -> list[str]:
    """Bodies of these records."""
    return [record.body.decode() for record in records(running, number, topic)]
