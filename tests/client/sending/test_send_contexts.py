"""Context managers are entered around each send."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from tests.client.conftest import producing

from roquet.client.config import ProducerConfig
from roquet.client.sending.send_contexts import send_within
from roquet.model.errors import CallRefused, ConfigError, UsageError
from roquet.model.message import Message

seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@contextmanager
def noted(taken: Any) -> Iterator[None]:
    what = [one.body for one in taken] if isinstance(taken, list) else taken.body
    seen.append(what)
    try:
        yield
    except CallRefused as error:
        seen.append(error.code)
        raise
    seen.append("sent")


@asynccontextmanager
async def waiting(_taken: Any) -> AsyncIterator[None]:
    seen.append("first")
    yield
    seen.append("last")


@contextmanager
def forgiving(_taken: Any) -> Iterator[None]:
    with suppress(CallRefused):
        yield


async def test_the_first_one_is_outermost() -> None:
    async with producing({"a": 1}, around=[waiting, noted]) as (_, producer):
        assert (await producer.send("t", b"x")).ok
    assert seen == ["first", b"x", "sent", "last"]


async def test_every_way_to_send_has_them() -> None:
    async with producing({"a": 1}, around=[noted]) as (_, producer):
        await producer.send(Message("t", b"1"))
        await producer.send_oneway("t", b"2")
        await producer.send_batch([Message("t", b"3"), Message("t", b"4")])
        receipts = await producer.send_many(Message("t", b"%d" % n) for n in (5, 6))
        assert [receipt.ok for receipt in receipts] == [True, True]
    assert seen == [
        b"1", "sent", b"2", "sent", [b"3", b"4"], "sent", [b"5", b"6"], "sent",
    ]  # fmt: skip


async def test_they_see_the_error_of_a_send() -> None:
    async with producing({"a": 1}, around=[noted], retry_times=0) as (cluster, producer):
        cluster.a.faults = [CallRefused(13, "too large"), CallRefused(13, "too large")]
        with pytest.raises(CallRefused):
            await producer.send("t", b"x")
        with pytest.raises(CallRefused):
            await producer.send_many([Message("t", b"y")])
    assert seen == [b"x", 13, [b"y"], 13]


async def test_an_error_of_their_own_keeps_a_message_from_being_sent() -> None:
    @contextmanager
    def refusing(_message: Any) -> Iterator[None]:
        raise PermissionError("not now")
        yield

    async with producing({"a": 1}, around=[refusing]) as (cluster, producer):
        with pytest.raises(PermissionError):
            await producer.send("t", b"x")
        assert cluster.a.sends == []


async def test_one_that_suppresses_an_error_leaves_no_receipt() -> None:
    async with producing({"a": 1}, around=[forgiving], retry_times=0) as (cluster, producer):
        cluster.a.faults = [CallRefused(13, "too large")]
        with pytest.raises(UsageError, match="suppressed a send's error"):
            await producer.send("t", b"x")


async def test_without_any_a_send_is_all_that_is_called() -> None:
    async def send() -> str:
        return "stored"

    assert await send_within((), Message("t", b"x"), send) == "stored"


def undecorated(_message: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("function", [lambda _: None, undecorated])
async def test_what_gives_no_context_manager_is_an_error_of_the_send(function: Any) -> None:
    async with producing({"a": 1}, around=[function]) as (_, producer):
        with pytest.raises(UsageError, match=r"decorate it with contextlib\.contextmanager \(or"):
            await producer.send("t", b"x")


@pytest.mark.parametrize("around", ["text", [3], len, None], ids=repr)
def test_only_functions_are_send_contexts(around: Any) -> None:
    with pytest.raises(ConfigError, match="around: several functions, as"):
        ProducerConfig(around=around)
