import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.dashboard.facts.test_dead_letters import give_up

from roquet.admin import messages
from roquet.admin.dead_letters import open_reader
from roquet.client.pull import PullConsumer
from roquet.dashboard.sampling import letter_tally
from roquet.dashboard.sampling.letter_tally import LetterTallies, LetterTally
from roquet.testing.cluster import Cluster, cluster


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    async with cluster(default_queue_count=1) as running:
        yield running


@pytest.fixture
async def reader(running: Cluster) -> AsyncIterator[PullConsumer]:
    async with open_reader(running.namesrv_addr) as reader:
        yield reader


async def test_each_letter_is_counted_once(running: Cluster, reader: PullConsumer) -> None:
    tally = LetterTally()
    await give_up(running, 2)
    assert (await tally.count(reader, "billing")).total() == 2
    await give_up(running, 3)
    assert (await tally.count(reader, "billing")).total() == 5
    assert (await tally.count(reader, "billing")).total() == 5


async def test_what_is_not_counted_in_time_is_counted_the_next_time(
    running: Cluster, reader: PullConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = LetterTally()
    await give_up(running, 2)
    monkeypatch.setattr(letter_tally, "COUNT_TIMEOUT_S", 0)
    assert (await tally.count(reader, "billing")).total() == 0
    monkeypatch.undo()
    assert (await tally.count(reader, "billing")).total() == 2


def test_the_tallies_of_the_newest_groups_are_remembered() -> None:
    tallies = LetterTallies()
    first = tallies.of("g0", None)
    for number in range(1, letter_tally.TALLIES_MAX):
        tallies.of(f"g{number}", None)
    assert tallies.of("g0", None) is first
    second = tallies.of("g1", None)
    tallies.of("another", None)
    assert tallies.of("g0", None) is first
    assert tallies.of("g2", None) is not None
    assert tallies.of("g1", None) is second


def test_no_user_gets_counts_of_letters_that_another_one_read() -> None:
    tallies = LetterTallies()
    assert tallies.of("billing", "root") is not tallies.of("billing", "bob")


async def test_who_waits_for_another_count_gets_what_is_counted_so_far(
    running: Cluster, reader: PullConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = LetterTally()
    await give_up(running, 2)
    await tally.count(reader, "billing")

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(messages, "queues", hang)
    other = asyncio.create_task(tally.count(reader, "billing"))
    await asyncio.sleep(0)
    monkeypatch.setattr(letter_tally, "COUNT_TIMEOUT_S", 0)
    async with asyncio.timeout(2):
        assert (await tally.count(reader, "billing")).total() == 2
    other.cancel()
