"""Pulls from an offset, and the progress of groups."""

from typing import Any

import pytest
from tests.proxy.conftest import User

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop

GROUP = pb.Resource(name="G_few")


def queue(number: int = 0, broker: str = "broker-a") -> pb.MessageQueue:
    return pb.MessageQueue(
        topic=pb.Resource(name="FIFOT"), id=number, broker=pb.Broker(name=broker)
    )


async def filled(user: User, count: int) -> None:
    """Messages in one queue: "g1" goes to queue 0 of four."""
    for number in range(count):
        await user.send(
            "FIFOT", b"%d" % number, message_group="g1", tag=["even", "odd"][number % 2]
        )


async def pull(user: User, offset: int, **fields: Any) -> list[Any]:
    request = service.PullMessageRequest(
        group=GROUP, message_queue=queue(), offset=offset, batch_size=32, **fields
    )
    parts: list[Any] = await user.call("PullMessage", request, 30)
    return parts


async def test_a_pull_gives_the_messages_from_an_offset_on_and_the_offset_behind(
    proxy: Proxy,
) -> None:
    user = User(proxy)
    await filled(user, 6)
    parts = await pull(user, 2)
    assert parts[0].status.code == pb.OK
    assert [part.message.body for part in parts[1:-1]] == [b"2", b"3", b"4", b"5"]
    assert parts[-1].next_offset == 6


async def test_a_pull_leaves_out_what_its_filter_does(proxy: Proxy) -> None:
    user = User(proxy)
    await filled(user, 6)
    parts = await pull(
        user, 0, filter_expression=pb.FilterExpression(type=pb.TAG, expression="odd")
    )
    assert [part.message.body for part in parts[1:-1]] == [b"1", b"3", b"5"]


async def test_a_pull_at_the_end_waits_and_finds_nothing(proxy: Proxy) -> None:
    user, clock = User(proxy), this_loop().clock
    await filled(user, 1)
    began_ms = clock.now_ms()
    parts = await pull(user, 1)
    assert [part.status.code for part in parts[:1]] == [pb.MESSAGE_NOT_FOUND]
    assert parts[-1].next_offset == 1
    assert clock.now_ms() - began_ms >= 4_000


async def test_a_pull_far_behind_the_end_says_which_offsets_are_there(proxy: Proxy) -> None:
    user = User(proxy)
    await filled(user, 1)
    first, last = await pull(user, 99)
    assert first.status.code == pb.ILLEGAL_OFFSET
    assert "offsets 0 to 1 are there" in first.status.message
    assert last.next_offset == 0  # as Apache's broker corrects it


async def test_progress_is_there_once_it_was_noted(proxy: Proxy) -> None:
    user = User(proxy)
    await filled(user, 3)
    get = service.GetOffsetRequest(group=GROUP, message_queue=queue())
    assert (await user.call("GetOffset", get)).status.code == pb.OFFSET_NOT_FOUND
    update = service.UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=2)
    assert (await user.call("UpdateOffset", update)).status.code == pb.OK
    assert (await user.call("GetOffset", get)).offset == 2


async def test_the_ends_of_a_queue_and_the_offset_of_a_time_are_told(proxy: Proxy) -> None:
    user, clock = User(proxy), this_loop().clock
    await filled(user, 2)
    await clock.sleep(10_000)
    middle_ms = clock.now_ms()
    await filled(user, 2)

    async def told(policy: Any) -> int:
        request = service.QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)
        request.timestamp.FromMilliseconds(middle_ms)
        return int((await user.call("QueryOffset", request)).offset)

    assert [await told(policy) for policy in (pb.BEGINNING, pb.END, pb.TIMESTAMP)] == [0, 4, 2]


@pytest.mark.parametrize(("number", "broker"), [(99, "broker-a"), (0, "broker-z")])
async def test_a_queue_that_is_not_there_is_named(proxy: Proxy, number: int, broker: str) -> None:
    request = service.GetOffsetRequest(group=GROUP, message_queue=queue(number, broker))
    answer = await User(proxy).call("GetOffset", request)
    assert answer.status.code == pb.BAD_REQUEST
    assert f"FIFOT@{broker}:{number}" in answer.status.message


async def test_a_negative_offset_is_refused(proxy: Proxy) -> None:
    (only,) = await pull(User(proxy), -1)
    assert only.status.code == pb.ILLEGAL_OFFSET
