"""The Go client github.com/apache/rocketmq-client-go/v2 2.1.2 against our broker."""

import asyncio
import hashlib
import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness import genuine
from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer, ReceivedMessage
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.message import Message, StoredMessage

pytestmark = pytest.mark.interop
SOURCE = Path(__file__).with_name("go_client")
BUILD_SECONDS_MAX = 550
"""The first build fetches twenty modules and compiles them on a busy machine of two cores."""


@pytest.fixture(scope="session")
def go_client() -> str:
    """The built client; built on first use and after each change."""
    return built(SOURCE, "go-client-2.1.2")


def built(source: Path, name: str) -> str:
    """A program that uses the Go client; built on first use and after each change."""
    if shutil.which("go") is None:
        pytest.skip("no 'go' on PATH: the Go client cannot be built")
    sources = sorted(source.iterdir())
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = genuine.CACHE / name
    program = folder / f"client-{stamp}"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        build = ["go", "build", "-buildvcs=false", "-o", str(program), "."]
        done = subprocess.run(
            build, check=False, cwd=source, capture_output=True, text=True,
            timeout=BUILD_SECONDS_MAX,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"the Go client does not build here: {done.stderr.strip()[-200:]}")
    return str(program)


Line = dict[str, Any]


def go(client: str, home: Path, what: str, *words: str) -> list[Line]:
    """What the client says; the last line that it came to its end."""
    output = genuine.run([client, what, *words], seconds=90, home=home)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert lines, (home / "stderr").read_text()
    assert lines[-1] == {"over": True}, (home / "stderr").read_text()
    return lines[:-1]


def make_topic(namesrv: str, topic: str) -> None:
    with Producer(namesrv, group="maker") as producer:
        producer.send(Message(topic, b"first", tag="first"))
    wait_for(namesrv, topic)


def wait_for(namesrv: str, topic: str) -> None:
    """Until the name server knows a new topic: the client gives up where it does not."""
    with PullConsumer(namesrv, group="reader") as consumer:
        assert consumer.queues(topic)


def stored(namesrv: str, topic: str) -> list[StoredMessage]:
    """All that lies in a topic, by its number where it has one."""
    with PullConsumer(namesrv, group="reader") as consumer:
        messages = [
            message
            for queue in consumer.queues(topic)
            for message in consumer.pull(queue, 0, 100).messages
        ]
    return sorted(messages, key=lambda message: int(message.properties.get("number", -1)))


def test_the_go_client_sends_single_delayed_and_compressed_messages(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    make_topic(ours_shared, "GoSends")
    lines = go(go_client, tmp_path / "h", "send", ours_shared, "GoSends", "10")
    assert [line["status"] for line in lines] == [0] * 12
    seen = go(go_client, tmp_path / "c", "consume", ours_shared, "GoSends", "2", "late || big")
    by_tag = {line["tag"]: line for line in seen}
    assert by_tag["big"]["length"] == 100_000
    assert by_tag["late"]["stored_ms"] - by_tag["late"]["born_ms"] >= 1_000
    messages = stored(ours_shared, "GoSends")
    numbered = [message for message in messages if "number" in message.properties]
    assert [m.body for m in numbered] == [b"body %d" % n for n in range(10)]
    assert [(m.key, m.tag) for m in numbered] == [
        (f"key{n}", "odd" if n % 2 else "even") for n in range(10)
    ]
    assert b"z" * 100_000 in [message.body for message in messages]


def test_the_go_client_sends_a_batch(go_client: str, ours_shared: str, tmp_path: Path) -> None:
    make_topic(ours_shared, "GoBatch")
    lines = go(go_client, tmp_path / "h", "batch", ours_shared, "GoBatch", "10")
    assert [line["status"] for line in lines] == [0]
    numbered = [m for m in stored(ours_shared, "GoBatch") if "number" in m.properties]
    assert [m.body for m in numbered] == [b"body %d" % n for n in range(10)]
    assert len({m.queue_id for m in numbered}) == 1


def send_numbered(namesrv: str, topic: str) -> None:
    with Producer(namesrv, group="maker") as producer:
        for number in range(10):
            tag = "odd" if number % 2 else "even"
            properties = {"n": str(number)}
            producer.send(Message(topic, b"body %d" % number, tag=tag, properties=properties))
    wait_for(namesrv, topic)


def test_the_go_client_consumes_by_tag_and_fails_once(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    send_numbered(ours_shared, "ToGo")
    seen = go(go_client, tmp_path / "h", "consume", ours_shared, "ToGo", "5", "even")
    assert sorted(line["body"] for line in seen) == [f"body {n}" for n in range(0, 10, 2)]
    # A retry topic that is not there when it starts is found half a minute later.
    with Producer(ours_shared, group="maker") as producer:
        producer.send(Message("ToGo", b"fail-once", tag="even"))
    seen = go(go_client, tmp_path / "c", "consume", ours_shared, "ToGo", "1", "even")
    assert [(line["body"], line["tries"]) for line in seen] == [("fail-once", 0), ("fail-once", 1)]


def test_the_go_client_consumes_by_an_sql_expression(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    send_numbered(ours_shared, "GoSql")
    words = [ours_shared, "GoSql", "4", "n BETWEEN 3 AND 6 OR TAGS = 'none'", "SQL92"]
    seen = go(go_client, tmp_path / "h", "consume", *words)
    assert sorted(line["body"] for line in seen) == [f"body {n}" for n in range(3, 7)]


def test_the_go_client_pulls_and_saves_its_progress(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    send_numbered(ours_shared, "GoPulls")
    seen = go(go_client, tmp_path / "h", "pull", ours_shared, "GoPulls", "10", "*")
    assert sorted(line["body"] for line in seen) == [f"body {n}" for n in range(10)]
    with PullConsumer(ours_shared, group="of_GoPulls") as consumer:
        queues = consumer.queues("GoPulls")
        assert sum(consumer.committed(queue) or 0 for queue in queues) == 10


def test_each_key_comes_in_order_and_again_where_it_failed(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    make_topic(ours_shared, "GoOrder")
    lines = go(go_client, tmp_path / "h", "order", ours_shared, "GoOrder", "24")
    queue_of_key = {number % 4: line["queue"] for number, line in enumerate(lines)}
    with Producer(ours_shared, group="maker") as producer:
        producer.send(Message("GoOrder", b"fail-once", order_key="any"))
    seen = go(go_client, tmp_path / "c", "ordered", ours_shared, "GoOrder", "26", "*")
    by_key: dict[int, list[int]] = defaultdict(list)
    for line in seen:
        if ":" in line["body"]:
            key, number = map(int, line["body"].split(":"))
            assert line["queue"] == queue_of_key[key]
            by_key[key].append(number)
    assert by_key == {key: list(range(key, 24, 4)) for key in range(4)}
    assert [line["tries"] for line in seen if line["body"] == "fail-once"] == [0, 1]


async def test_transactions_of_the_go_client_end_as_its_check_decides(
    go_client: str, ours_asking: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(make_topic, ours_asking, "GoTransactions")
    words = [ours_asking, "GoTransactions", "0"]
    lines = await asyncio.to_thread(go, go_client, tmp_path / "h", "transact", *words)
    assert [line["status"] for line in lines if "status" in line] == [0] * 4
    assert sorted(line["checked"] for line in lines if "checked" in line) == [
        "asked-no",
        "asked-yes",
    ]
    messages = await asyncio.to_thread(stored, ours_asking, "GoTransactions")
    assert sorted(message.body for message in messages) == [b"asked-yes", b"first", b"yes"]


async def test_requests_of_the_go_client_are_answered_by_our_client(
    go_client: str, ours_shared: str, tmp_path: Path
) -> None:
    async def answer(message: ReceivedMessage) -> None:
        if message.body != b"first":
            assert await message.reply(message.body.upper())

    await asyncio.to_thread(make_topic, ours_shared, "GoAsks")
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
    async with PushConsumer(
        ours_shared, group="answers", topic="GoAsks", config=config
    ) as consumer:
        running = asyncio.create_task(consumer.run(answer))
        words = [ours_shared, "GoAsks", "3"]
        lines = await asyncio.to_thread(go, go_client, tmp_path / "h", "request", *words)
        consumer.stop()
        await running
    assert [line["reply"] for line in lines] == ["BODY 0", "BODY 1", "BODY 2"]


@pytest.fixture
def ours_asking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Our broker, asking for the end of a transaction after two seconds."""
    monkeypatch.setenv("ROQUET_TRANSACTION_TIMEOUT", "2s")
    monkeypatch.setenv("ROQUET_TRANSACTION_CHECK_INTERVAL", "2s")
    address: str = request.getfixturevalue("ours")
    return address
