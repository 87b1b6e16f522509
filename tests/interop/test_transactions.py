"""Transactions of the genuine Java client and of ours, through our broker and the genuine one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness import genuine
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    PushConsumer,
    ReceivedMessage,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
PROGRAM = str(Path(__file__).with_name("Transactions.java"))
WAIT_S = 90
"""Three rounds of checks, on a busy machine."""


@pytest.fixture(scope="session")
def quick_theirs(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[genuine.Genuine]:
    """The genuine broker, asking every ten seconds.

    It notes ends up to three seconds late: with less it asks about messages that have ended.
    """
    folder = tmp_path_factory.mktemp("genuine-tx")
    settings = {"transactionTimeOut": "5000", "transactionCheckInterval": "10000"}
    with genuine.cluster(folder, **settings) as running:
        yield running


@pytest.fixture(params=["ours", "theirs"])
def namesrv(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of our broker, which asks every three seconds, then of the genuine one."""
    if request.param == "theirs":
        running: genuine.Genuine = request.getfixturevalue("quick_theirs")
        return running.namesrv
    monkeypatch.setenv("ROQUET_TRANSACTION_TIMEOUT", "5s")
    monkeypatch.setenv("ROQUET_TRANSACTION_CHECK_INTERVAL", "3s")
    address: str = request.getfixturevalue("ours")
    return address


@asynccontextmanager
async def consuming(namesrv: str, topic: str) -> AsyncIterator[list[tuple[str, str | None]]]:
    """What a consumer gets: bodies and tags."""
    got: list[tuple[str, str | None]] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append((message.body.decode(), message.tag))

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(namesrv, group="of_" + topic, topic=topic, config=config) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        try:
            yield got
        finally:
            await asyncio.sleep(2)
            consumer.stop()
            await running


async def test_java_sends_in_transactions(java: None, namesrv: str, tmp_path: Path) -> None:
    topic, jars = "JavaTransactions", f"{genuine.jars()}/*"
    command = ["java", "-cp", jars, PROGRAM, namesrv, "java_tx", topic, str(WAIT_S), "5"]
    async with consuming(namesrv, topic) as got:
        output = await asyncio.to_thread(genuine.run, command, seconds=150, home=tmp_path / "h")
    lines = output.splitlines()
    sent = [line for line in lines if line.startswith("sent")]
    assert sent == [
        "sent commit SEND_OK COMMIT_MESSAGE true",
        "sent rollback SEND_OK ROLLBACK_MESSAGE true",
        "sent unknown-commit SEND_OK UNKNOW true",
        "sent unknown-rollback SEND_OK UNKNOW true",
        "sent unknown-unknown-commit SEND_OK UNKNOW true",
        "sent throw-commit SEND_OK UNKNOW true",
    ]
    checks = sorted(line for line in lines if line.startswith("check"))
    assert checks == [
        f"check throw-commit 1 1 {topic}",
        f"check unknown-commit 1 1 {topic}",
        f"check unknown-rollback 1 1 {topic}",
        f"check unknown-unknown-commit 1 1 {topic}",
        f"check unknown-unknown-commit 2 2 {topic}",
    ]
    expected = ["commit", "throw-commit", "unknown-commit", "unknown-unknown-commit"]
    assert sorted(got) == [(body, "tag") for body in expected]


async def test_we_send_in_transactions(java: None, namesrv: str) -> None:
    checks: list[tuple[bytes, str | None]] = []

    async def check(message: StoredMessage) -> TransactionState:
        checks.append((message.body, message.properties.get("TRANSACTION_CHECK_TIMES")))
        if message.body == b"not yet" and len(checks) < 3:
            return TransactionState.UNKNOWN
        no = message.body == b"no, after all"
        return TransactionState.ROLLBACK if no else TransactionState.COMMIT

    async with (
        consuming(namesrv, "OurTransactions") as got,
        TransactionProducer(namesrv, group="our_tx", check=check) as producer,
    ):
        for body in (b"yes", b"no, after all", b"not yet"):
            async with producer.transaction("OurTransactions", body, tag="tag") as tx:
                if body != b"yes":
                    tx.unknown()
        with pytest.raises(ValueError, match="not this one"):
            async with producer.transaction("OurTransactions", b"never"):
                raise ValueError("not this one")
        done = await producer.send_in_transaction(
            "OurTransactions", b"java style", tag="tag", local=lambda _: TransactionState.COMMIT
        )
        assert done.state is TransactionState.COMMIT
        async with asyncio.timeout(WAIT_S):
            while len(checks) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(6)  # for a check that should not come
    assert sorted(checks) == [(b"no, after all", "1"), (b"not yet", "1"), (b"not yet", "2")]
    assert sorted(got) == [("java style", "tag"), ("not yet", "tag"), ("yes", "tag")]
