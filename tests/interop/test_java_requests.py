"""Requests and replies between the genuine Java client and ours, through our broker and theirs."""

import asyncio
from pathlib import Path

import pytest

from harness import genuine
from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage

pytestmark = pytest.mark.interop
PROGRAM = str(Path(__file__).with_name("RequestReply.java"))
BODIES = [f"body {n}" for n in range(5)]


async def java_says(what: str, namesrv: str, topic: str, home: Path) -> list[str]:
    jars = f"{genuine.jars()}/*"
    command = ["java", "-cp", jars, PROGRAM, what, namesrv, topic, str(len(BODIES))]
    output = await asyncio.to_thread(genuine.run, command, seconds=150, home=home)
    return output.splitlines()


@pytest.fixture(params=["ours", "theirs"])
def namesrv(request: pytest.FixtureRequest) -> str:
    """Of our broker, then of the genuine one."""
    if request.param == "theirs":
        running: genuine.Genuine = request.getfixturevalue("theirs")
        return running.namesrv
    address: str = request.getfixturevalue("ours")
    return address


async def test_java_asks_and_we_answer(java: None, namesrv: str, tmp_path: Path) -> None:
    async def answer(message: ReceivedMessage) -> None:
        if message.body != b"silence":
            assert await message.reply(message.body.upper(), properties={"mine": "yes"})

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(namesrv, group="answers", topic="JavaAsks", config=config) as consumer:
        running = asyncio.create_task(consumer.run(answer))
        lines = await java_says("ask", namesrv, "JavaAsks", tmp_path / "h")
        consumer.stop()
        await running
    replies = [line for line in lines if line.startswith("reply")]
    assert replies == [f"reply {body.upper()} yes" for body in BODIES]
    assert "timeout" in lines


async def test_we_ask_and_java_answers(java: None, namesrv: str, tmp_path: Path) -> None:
    async with Producer(namesrv) as producer:
        await producer.send("WeAsk", b"so that the topic is there")  # Java cannot answer this one
        running = asyncio.create_task(java_says("answer", namesrv, "WeAsk", tmp_path / "h"))
        requests = (producer.request("WeAsk", body.encode(), timeout_ms=60_000) for body in BODIES)
        replies = await asyncio.gather(*requests)
        lines = await running
    assert [reply.body.decode() for reply in replies] == [body.upper() for body in BODIES]
    assert lines.count("answered SEND_OK") == len(BODIES)
    assert "enough true" in lines
