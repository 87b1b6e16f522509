"""npm's ali-ons 3.12.0 (pure JavaScript) against our broker, and the genuine one."""

import asyncio
import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness import genuine
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.message import Message

pytestmark = pytest.mark.interop
CLIENT = str(Path(__file__).with_name("js_client.js"))
PACKAGES = "ali-ons@3.12.0", "urllib@2"
"""Its own HTTP client is a choice of its user: `httpclient` is not in what it installs."""


@pytest.fixture(scope="session")
def js_packages() -> Path:
    """A folder in which npm's ali-ons is installed; fetched on first use."""
    for command in ("node", "npm"):
        if shutil.which(command) is None:
            pytest.skip(f"no {command!r} on PATH: ali-ons cannot be run")
    folder = genuine.CACHE / "js-client-3.12.0"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"name":"beside","version":"1.0.0","private":true}')
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        done = subprocess.run(
            install, check=False, cwd=folder, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            pytest.skip(f"{PACKAGES[0]} does not install here: {done.stderr.strip()[-200:]}")
        (folder / "complete").touch()
    return folder / "node_modules"


@pytest.fixture(params=["ours", "theirs"])
def namesrv(request: pytest.FixtureRequest, js_packages: Path) -> str:
    """Of our broker, then of the genuine one."""
    if request.param == "theirs":
        running: genuine.Genuine = request.getfixturevalue("theirs")
        return running.namesrv
    address: str = request.getfixturevalue("ours_shared")
    return address


@pytest.fixture
def topic(request: pytest.FixtureRequest, namesrv: str) -> str:
    """A topic of the test's own that is there: the client gives up where none is."""
    name = "Js_" + str(request.node.originalname)
    with Producer(namesrv, group="maker") as producer:
        producer.send(Message(name, b"first", tag="first"))
    with PullConsumer(namesrv, group="reader") as consumer:
        assert consumer.queues(name)  # waits until the name server knows it
    return name


Line = dict[str, Any]


def js(packages: Path, home: Path, *words: str) -> list[Line]:
    """What the client says."""
    command = ["env", f"NODE_PATH={packages}", "node", CLIENT, *words]
    output = genuine.run(command, seconds=60, home=home)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_messages_of_the_js_client_have_tags_keys_and_properties(
    js_packages: Path, namesrv: str, topic: str, tmp_path: Path
) -> None:
    lines = js(js_packages, tmp_path / "h", "send", namesrv, topic, "10")
    assert [line["status"] for line in lines[:-1]] == ["SEND_OK"] * 12
    with PullConsumer(namesrv, group="reader") as consumer:
        messages = [
            message
            for queue in consumer.queues(topic)
            for message in consumer.pull(queue, 0, 100).messages
        ]
    numbered = sorted(
        (m for m in messages if "number" in m.properties), key=lambda m: int(m.properties["number"])
    )
    assert [m.body for m in numbered] == [b"body %d" % n for n in range(10)]
    assert [m.key for m in numbered] == [f"key{n}" for n in range(10)]
    assert [m.tag for m in numbered] == ["even", "odd"] * 5
    # A time at which Aliyun's brokers deliver is a property like any other to Apache's and to ours.
    assert [m.body for m in messages if "__STARTDELIVERTIME" in m.properties] == [b"body 1002"]


async def test_messages_of_the_js_client_with_a_delay_level_come_later(
    js_packages: Path, namesrv: str, topic: str, tmp_path: Path
) -> None:
    consume = ["consume", namesrv, topic, "1", "level"]
    coming = asyncio.create_task(asyncio.to_thread(js, js_packages, tmp_path / "c", *consume))
    lines = await asyncio.to_thread(js, js_packages, tmp_path / "h", "send", namesrv, topic, "0")
    sent_ms = {line["delayed"]: line["ms"] for line in lines if "delayed" in line}
    seen = {line["tag"]: line["ms"] for line in await coming if "tag" in line}
    assert seen["level"] - sent_ms["level"] >= 1_000  # 5 s by ours; theirs runs with short levels


def test_the_js_client_consumes_our_messages_by_tag_and_fails_once(
    js_packages: Path, namesrv: str, topic: str, tmp_path: Path
) -> None:
    with Producer(namesrv, group="maker") as producer:
        for number in range(10):
            tag = "even" if number % 2 == 0 else "odd"
            producer.send(Message(topic, b"body %d" % number, tag=tag, keys=(f"key{number}",)))
        producer.send(Message(topic, b"fail-once", tag="even"))
    seen = js(js_packages, tmp_path / "h", "consume", namesrv, topic, "6", "even")[:-1]
    assert sorted((line["body"], line["tries"]) for line in seen) == [
        *((f"body {n}", 0) for n in range(0, 10, 2)),
        ("fail-once", 0),
        ("fail-once", 1),
    ]
    assert {line["tag"] for line in seen} == {"even"}


def test_an_sql_expression_chooses(
    js_packages: Path, namesrv: str, topic: str, tmp_path: Path
) -> None:
    with Producer(namesrv, group="maker") as producer:
        for number in range(10):
            producer.send(Message(topic, b"body %d" % number, properties={"n": str(number)}))
    words = ["consume", namesrv, topic, "4", "n BETWEEN 3 AND 6", "SQL92"]
    seen = js(js_packages, tmp_path / "h", *words)[:-1]
    assert sorted(line["body"] for line in seen) == [f"body {n}" for n in range(3, 7)]


def test_each_key_comes_in_order_from_one_queue(
    js_packages: Path, namesrv: str, topic: str, tmp_path: Path
) -> None:
    lines = js(js_packages, tmp_path / "h", "order", namesrv, topic, "24")[:-1]
    assert [line["status"] for line in lines] == ["SEND_OK"] * 24
    assert len({(line["key"], line["queue"]) for line in lines}) == 4
    seen = js(js_packages, tmp_path / "c", "consume", namesrv, topic, "24", "ordered")[:-1]
    by_key: dict[str, list[int]] = defaultdict(list)
    for line in seen:
        key, number = line["body"].split(":")
        by_key[key].append(int(number))
    assert by_key == {str(key): list(range(key, 24, 4)) for key in range(4)}
