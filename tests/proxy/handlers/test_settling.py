"""Acknowledgements, changed invisible times and dead letters; codes as of the genuine proxy."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.proxy.conftest import User, consumer_settings, dead_letters

from roquet.proxy.handlers.settling import ENTRIES_MAX
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.cluster import Cluster


@pytest.fixture
async def user(proxy: Proxy) -> AsyncIterator[User]:
    """A client whose group has begun."""
    made = User(proxy)
    async with made.telemetry(consumer_settings()):
        await made.receive(timeout_s=6)
        yield made


async def received(user: User, count: int = 1, **fields: Any) -> list[pb.Message]:
    for number in range(count):
        await user.send("NORM", b"%d" % number)
    found: list[pb.Message] = []
    while len(found) < count:
        found += await user.receive(**fields)
    return found


async def change(
    user: User, handle: str, seconds: float, topic: str = "NORM", **fields: Any
) -> Any:
    request = service.ChangeInvisibleDurationRequest(
        group=pb.Resource(name="g"),
        topic=pb.Resource(name=topic),
        receipt_handle=handle,
        **fields,
    )
    request.invisible_duration.FromMilliseconds(int(seconds * 1_000))
    return await user.call("ChangeInvisibleDuration", request)


async def test_acknowledged_messages_do_not_come_again(user: User) -> None:
    answer = await user.ack(*await received(user, 5))
    assert (answer.status.code, len(answer.entries)) == (pb.OK, 5)
    await asyncio.sleep(60)
    assert await user.receive(timeout_s=6) == []


async def test_a_second_acknowledgement_is_as_good_as_the_first(user: User) -> None:
    (message,) = await received(user)
    assert [(await user.ack(message)).status.code for _ in range(2)] == [pb.OK, pb.OK]


async def test_each_entry_of_an_acknowledgement_has_its_own_status(user: User) -> None:
    (message,) = await received(user)
    garbage = pb.Message(system_properties=pb.SystemProperties(receipt_handle="garbage"))
    answer = await user.ack(message, garbage)
    assert answer.status.code == pb.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [pb.OK, pb.INVALID_RECEIPT_HANDLE]


async def test_an_expired_receipt_is_refused(user: User) -> None:
    (message,) = await received(user)
    await asyncio.sleep(16)
    answer = await user.ack(message)
    assert answer.status.code == pb.INVALID_RECEIPT_HANDLE


async def test_a_changed_time_counts_and_gives_a_new_handle(user: User) -> None:
    (message,) = await received(user)
    changed = await change(user, message.system_properties.receipt_handle, 60)
    assert changed.status.code == pb.OK
    await asyncio.sleep(30)
    assert await user.receive(timeout_s=6) == []
    message.system_properties.receipt_handle = changed.receipt_handle
    assert (await user.ack(message)).status.code == pb.OK
    await asyncio.sleep(60)
    assert await user.receive(timeout_s=6) == []


@pytest.mark.parametrize(("suspend", "attempt"), [(True, 1), (False, 2)])
async def test_a_suspended_message_comes_again_as_the_same_attempt(
    user: User, suspend: bool, attempt: int
) -> None:
    (message,) = await received(user)
    handle = message.system_properties.receipt_handle
    assert (await change(user, handle, 1, suspend=suspend)).status.code == pb.OK
    await asyncio.sleep(3)
    (again,) = await user.receive()
    assert again.system_properties.delivery_attempt == attempt


async def test_a_time_of_zero_lets_a_message_come_at_once(user: User) -> None:
    (message,) = await received(user)
    assert (await change(user, message.system_properties.receipt_handle, 0)).status.code == pb.OK
    await asyncio.sleep(3)
    (again,) = await user.receive()
    assert again.system_properties.message_id == message.system_properties.message_id


@pytest.mark.parametrize(
    ("handle", "seconds", "code"),
    [
        ("garbage", 20, pb.INVALID_RECEIPT_HANDLE),
        ("1 2 3 4 0 broker-a 5 6 7", 20, pb.INVALID_RECEIPT_HANDLE),  # of a time long ago
        ("1 2 3 4 9 broker-a 5 6 7", 20, pb.INVALID_RECEIPT_HANDLE),
        ("x", 13 * 3_600, pb.ILLEGAL_INVISIBLE_TIME),
    ],
)
async def test_illegal_changes_are_refused(
    user: User, handle: str, seconds: int, code: int
) -> None:
    assert (await change(user, handle, seconds)).status.code == code


async def test_a_handle_of_a_broker_that_is_not_there_is_refused(user: User) -> None:
    (message,) = await received(user)
    handle = message.system_properties.receipt_handle.replace("broker-a", "broker-z")
    message.system_properties.receipt_handle = handle
    assert (await user.ack(message)).status.code == pb.BAD_REQUEST


async def test_a_forwarded_message_is_a_dead_letter_and_done(user: User, running: Cluster) -> None:
    (message,) = await received(user)
    request = service.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name="g"),
        topic=pb.Resource(name="NORM"),
        receipt_handle=message.system_properties.receipt_handle,
        message_id=message.system_properties.message_id,
    )
    assert (await user.call("ForwardMessageToDeadLetterQueue", request)).status.code == pb.OK
    await asyncio.sleep(60)
    assert await user.receive(timeout_s=6) == []
    letters = await dead_letters(running, "g")
    assert [letter.message_id for letter in letters] == [message.system_properties.message_id]


async def test_a_message_is_renewed_for_as_long_as_its_handler_takes(user: User) -> None:
    (message,) = await received(user, auto_renew=True)
    for _ in range(4):
        await asyncio.sleep(60)
        await user.call("Heartbeat", service.HeartbeatRequest(group=pb.Resource(name="g")))
    other = User(user.proxy, "other")
    async with other.telemetry(consumer_settings()):
        assert await other.receive(timeout_s=6) == []
        assert (await user.ack(message)).status.code == pb.OK
        await asyncio.sleep(240)
        assert await other.receive(timeout_s=6) == []


async def test_messages_of_a_client_that_leaves_come_soon_to_others(user: User) -> None:
    await received(user, auto_renew=True)
    other = User(user.proxy, "other")
    async with other.telemetry(consumer_settings()):
        request = service.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
        await user.call("NotifyClientTermination", request)
        await asyncio.sleep(10)
        assert len(await other.receive()) == 1


async def test_an_acknowledgement_of_a_message_that_is_not_there_is_refused(user: User) -> None:
    (message,) = await received(user)
    fields = message.system_properties.receipt_handle.split(" ")
    fields[7] = "4711"
    message.system_properties.receipt_handle = " ".join(fields)
    assert (await user.ack(message)).status.code == pb.INVALID_RECEIPT_HANDLE


async def test_a_flood_of_acknowledgements_is_refused_as_a_whole(user: User) -> None:
    answer = await user.ack(*[pb.Message()] * (ENTRIES_MAX + 1))
    assert answer.status.code == pb.BAD_REQUEST
    assert not answer.entries
