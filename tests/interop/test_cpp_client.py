"""PyPI's C++ based client 0.4.4 against our broker."""

import json
from pathlib import Path

import pytest

from harness import genuine
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.message import Message

pytestmark = pytest.mark.interop
CLIENT = str(Path(__file__).with_name("cpp_client.py"))


def lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_our_client_reads_single_and_batched_messages_of_the_cpp_client(
    cpp_python: str, ours: str, tmp_path: Path
) -> None:
    with Producer(ours, group="maker") as producer:
        producer.send(Message("FromCpp", b"first"))
    sent = lines(
        genuine.run(
            [cpp_python, CLIENT, "send", ours, "FromCpp", "10"], seconds=60, home=tmp_path / "h"
        )
    )
    assert [line["status"] for line in sent] == [0] * 6

    with PullConsumer(ours, group="reader") as consumer:
        messages = [
            message
            for queue in consumer.queues("FromCpp")
            for message in consumer.pull(queue, 0, 100).messages
        ]
    numbered = sorted(
        (m for m in messages if m.body != b"first"), key=lambda m: int(m.properties["number"])
    )
    assert [m.body for m in numbered] == [b"body %d" % n for n in range(10)]
    assert [m.key for m in numbered] == [f"key{n}" for n in range(10)]
    assert {m.tag for m in numbered} == {"even", "odd"}


def test_the_cpp_client_consumes_our_messages_by_tag(
    cpp_python: str, ours: str, tmp_path: Path
) -> None:
    with Producer(ours, group="maker") as producer:
        for number in range(20):
            tag = "even" if number % 2 == 0 else "odd"
            producer.send(Message("ToCpp", b"body %d" % number, tag=tag, keys=(f"key{number}",)))
    command = [cpp_python, CLIENT, "consume", ours, "ToCpp", "10", "even"]
    seen = lines(genuine.run(command, seconds=90, home=tmp_path / "h"))
    assert sorted(str(line["body"]) for line in seen) == sorted(
        f"body {n}" for n in range(0, 20, 2)
    )
    assert {line["tag"] for line in seen} == {"even"}
