"""Public methods of clients with arguments of wrong types and out of bounds: errors of ours."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from tests.conversation.conftest import config_of, virtual_cluster

from roquet.admin.client import AdminClient
from roquet.client import (
    ConfigError,
    ConsumerConfig,
    Message,
    MessageQueue,
    PopConsumer,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    RoquetError,
    TransactionProducer,
    TransactionState,
    UsageError,
    blocking,
)
from roquet.testing.cluster import BlockingCluster

QUEUE = MessageQueue("t", "broker-a", 0)
"""The only queue there is."""

WRONG: Sequence[Any] = [
    None, -1, 0, 2**63, 10**400, 1.5, float("nan"), float("inf"), True, "", "3s", "\ud83d", b"x",
    "no such topic", [], ["x"], [1], [None], {}, {"a": 1}, {1: "a"}, object(), Message,
    ("t", b"body"), [("t", b"body")], lambda: None, lambda message: message,
    timedelta.max, timedelta.min, datetime.max,  # noqa: DTZ901
    datetime.min.replace(tzinfo=UTC),
    MessageQueue("t", "broker-z", 99), MessageQueue(1, 2, "x"),  # type: ignore[arg-type]
    [MessageQueue("t", "broker-a", 2**70)], [3, QUEUE], QUEUE, Message("t", b"x"),
    Message("t", "text"), Message(1, b"x"), Message([], b"x"),  # type: ignore[arg-type]
    Message("t", b"x", keys=(1,)), Message("t", b"x", properties=["a"]),  # type: ignore[arg-type]
    [Message("t", b"x", properties=["a"])], Message("t", b"x", flag=2**40),  # type: ignore[arg-type]
]  # fmt: skip

VALID: Mapping[str, Any] = {
    "message": "t", "queue": QUEUE, "queues": [QUEUE], "offset": 0, "topic": "t", "handle": "x",
    "messages": [Message("t", b"x")], "count": 1, "stored_ms": 0, "listener": print,
    "invisible_ms": 1_000, "local": lambda _: TransactionState.COMMIT,
}  # fmt: skip
"""Arguments of those parameters that are not tried and have no default."""

FIELDS = ("tag", "keys", "order_key", "properties", "flag", "delay_level", "delay", "deliver_at")
"""Of the messages that sends take in parts."""

NOT_USERS = {"send_in_turn", "begin", "end", "end_quietly", "settle", "fail", "give_up", "next_try",
             "moved", "finish", "ask_each", "change_each"}  # fmt: skip
"""Methods between parts of the client."""

ENDLESS = {"start", "close", "stop", "run", "run_batch", "messages", "ack", "dead_letter"}
"""Tried below, or without an argument."""


async def committed(message: object) -> TransactionState:
    return TransactionState.COMMIT


def trials(thing: object) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of each public method, in each of which one argument is wrong."""
    for name in sorted(dir(type(thing))):
        if name.startswith("_") or name in NOT_USERS | ENDLESS:
            continue
        if callable(method := getattr(thing, name)):
            for arguments, call in wrong_calls(method):
                yield f"{type(thing).__name__}.{name}({arguments})", call


def wrong_calls(method: Callable[..., Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of one method."""
    parameters = inspect.signature(method).parameters
    variadic = {
        name
        for name, each in parameters.items()
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }
    required = {name for name, each in parameters.items() if each.default is each.empty}
    needed = {name: VALID.get(name) for name in required - variadic}
    if "fields" in variadic:
        needed["body"] = b"x"
    fields = FIELDS if "fields" in variadic else ()
    tried = [name for name in parameters if name != "fields"]
    for victim, wrong in product([*tried, *fields], WRONG):
        if victim in variadic:
            yield f"{wrong!r:.60}", partial(method, wrong)
        elif not (
            (victim == "timeout_ms" and wrong is None) or (victim == "local" and wrong is Message)
        ):
            yield f"{victim}={wrong!r:.60}", partial(method, **{**needed, victim: wrong})


async def raw_errors(thing: object) -> Sequence[str]:
    """The trials that end otherwise than by a result or an error of ours."""
    faults = []
    for what, call in trials(thing):
        try:
            result = call()
            if inspect.isawaitable(result):
                async with asyncio.timeout(4):  # more than any default
                    await result
        except RoquetError:
            pass
        except BaseException as error:
            faults.append(f"{what}: {error!r:.200}")
    return faults


KINDS = ["Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "PopConsumer",
         "ReceivedMessage", "PoppedMessage", "AdminClient"]  # fmt: skip


async def thing_of(kind: str, address: str, opened: AsyncExitStack) -> Any:
    """An open client of a kind, or a message that it received."""
    sends = config_of(ProducerConfig)
    reads = config_of(ConsumerConfig, suspend_ms=100)
    thing: Any
    match kind:
        case "Producer":
            thing = Producer(address, config=sends)
        case "TransactionProducer":
            thing = TransactionProducer(address, group="tx", check=committed, config=sends)
        case "PullConsumer":
            thing = PullConsumer(address, group="g", config=reads)
        case "PushConsumer" | "ReceivedMessage":
            thing = PushConsumer(address, group="g", topic="t", config=reads)
        case "PopConsumer" | "PoppedMessage":
            thing = PopConsumer(address, group="g", topic="t", config=reads)
        case _:
            thing = AdminClient(address)
    await opened.enter_async_context(thing)
    if kind == "PullConsumer":
        await thing.assign(await thing.queues("t"))
    return await thing.next(60_000) if kind.endswith("Message") else thing


@pytest.mark.parametrize("kind", KINDS)
async def test_no_method_raises_a_raw_error_or_waits_for_ever(kind: str) -> None:
    async with virtual_cluster(default_queue_count=1) as running, AsyncExitStack() as opened:
        address = running.namesrv_addr
        async with Producer(address) as producer:
            await producer.send("t", b"one")
            await producer.send("t", b"two")
        assert await raw_errors(await thing_of(kind, address, opened)) == []


def no_message() -> None: ...


async def no_message_either() -> None: ...


RUNS: Sequence[tuple[Any, str]] = [
    (no_message, r"a handler is called with one argument, the message: .* takes \(\)"),
    (no_message_either, "called with one argument, the message"),
    (lambda a, b: None, "called with one argument"),
    ("print", "a handler is a function, not str"),
    (None, "a handler is a function, not NoneType"),
    (
        lambda message: committed(message),
        "the handler returned a coroutine",
    ),
]


@pytest.mark.parametrize(("handler", "text"), RUNS, ids=map(str, range(len(RUNS))))
async def test_a_handler_that_cannot_be_one_ends_the_run_with_an_error(
    handler: Any, text: str
) -> None:
    async with virtual_cluster() as running:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("t", b"one")
        async with PushConsumer(
            running.namesrv_addr, group="g", topic="t", config=config_of(ConsumerConfig)
        ) as consumer:
            consumer_run = asyncio.wait_for(consumer.run(handler), 60)
            with pytest.raises(UsageError, match=text):
                await consumer_run


REFUSED: Sequence[tuple[str, Mapping[str, Any], str]] = [
    ("send", {"keys": [1]}, r"keys are str, as \('A-17', 'A-18'\), not \(1,\)"),
    ("send", {"keys": 7}, "keys are str"),
    ("send", {"properties": ["a=1"]}, r"properties are a dict of str, not \['a=1'\]"),
    ("send", {"properties": {"a": 0}}, "property names and values are str: 'a' is 0"),
    ("send", {"timeout_ms": "3s"}, r"timeout_ms: a whole number \(int\), not '3s'"),
    ("send", {"timeout_ms": -1}, "timeout_ms: -1 is less than 1"),
    ("send", {"timeout_ms": True}, "timeout_ms: a whole number"),
    ("send", {"timeout_ms": 10**400}, "timeout_ms: a number of 1329 bits is more than"),
    ("send", {"flag": 2**31}, "flag: 2147483648 is more than 2147483647"),
    ("send", {"selector": "hash"}, "a selector is a function, not 'hash'"),
    ("send", {"message": ["t"]}, "a message is a Message, or a topic and a body"),
    ("send_batch", {"messages": [("t", b"x")]}, r"a Message\(topic, body\), not \('t'"),
    ("send_batch", {"messages": Message("t", b"x")}, "several Message"),
    ("send_many", {"messages": 3}, r"several Message, as \[Message\(...\)\], not 3"),
    ("send_many", {"messages": [Message("t", b"x")], "in_flight": 0}, "in_flight: 0 is less"),
    ("flush", {"timeout_ms": -1}, "timeout_ms: -1 is less than 0"),
    ("recall", {"topic": "t", "handle": 3}, "a recall handle is a str, not 3"),
    ("request", {"timeout_ms": float("nan")}, "timeout_ms: a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "text"), REFUSED)
async def test_an_error_says_what_to_pass(
    method: str, arguments: Mapping[str, Any], text: str
) -> None:
    parts = {"message": "t", "body": b"x"} if method in {"send", "request"} else {}
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        with pytest.raises(UsageError, match=text):
            await getattr(producer, method)(**{**parts, **arguments})


async def test_a_delay_that_no_broker_holds_is_refused_by_the_broker() -> None:
    async with virtual_cluster() as running, Producer(running.namesrv_addr) as producer:
        with pytest.raises(RoquetError, match="this broker keeps it for 259200 s at most"):
            await producer.send("t", b"x", delay=timedelta.max)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9876", "127.0.0.1:9876/path", "tcp://a", 9876, ["a:1", 7], b"a:1"]
)
@pytest.mark.parametrize(
    "kind", [Producer, AdminClient, blocking.Producer], ids=["async", "admin", "blocking"]
)
def test_an_address_that_is_none_is_named(kind: Any, address: Any) -> None:
    with pytest.raises(ConfigError, match=r"HOST:|several such texts"):
        kind(address)


@pytest.mark.virtual_time(False)
def test_blocking_clients_say_the_same_in_words_that_fit_them() -> None:
    with BlockingCluster() as running:
        producer = blocking.Producer(running.namesrv_addr)
        with pytest.raises(UsageError) as raised:
            producer.send("t", b"x")
        assert "await" not in str(raised.value)
        with producer:
            for method, arguments, text in REFUSED:
                parts = {"message": "t", "body": b"x"} if method in {"send", "request"} else {}
                with pytest.raises(UsageError, match=text):
                    getattr(producer, method)(**{**parts, **arguments})
            producer.send("t", b"x")
        for handler, text in RUNS:
            with (
                blocking.PushConsumer(running.namesrv_addr, group="g", topic="t") as consumer,
                pytest.raises(UsageError, match=text),
            ):
                consumer.run(handler)
