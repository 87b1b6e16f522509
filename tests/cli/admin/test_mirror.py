import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cli.running import invoke, must_fail, roquet

from roquet.client import blocking
from roquet.client.config import ProducerConfig
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster

COUNT = 4_200


@pytest.fixture
def clusters() -> Iterator[tuple[BlockingCluster, BlockingCluster]]:
    with BlockingCluster() as source, BlockingCluster() as target:
        yield source, target


def addresses(clusters: tuple[BlockingCluster, BlockingCluster]) -> list[str]:
    source, target = clusters
    return ["--from", source.namesrv_addr, "--to", target.namesrv_addr]


def send(cluster: BlockingCluster, numbers: range) -> None:
    with blocking.Producer(
        cluster.namesrv_addr, config=ProducerConfig(new_topic_queues=4)
    ) as producer:
        for number in numbers:
            producer.send("orders", b"%d" % number, order_key=f"k{number % 7}")


def bodies(cluster: BlockingCluster) -> dict[int, list[bytes]]:
    with blocking.PullConsumer(cluster.namesrv_addr, group="look") as reader:
        found: dict[int, list[bytes]] = {}
        for queue in reader.queues("orders"):
            offset, end = reader.min_offset(queue), reader.max_offset(queue)
            own = found.setdefault(queue.queue_id, [])
            while offset < end:
                result = reader.pull(queue, offset, 500)
                own += [message.body for message in result.messages]
                offset = result.next_offset
        return found


def size(cluster: BlockingCluster) -> int:
    """Messages of the topic, as far as the cluster has it."""
    with blocking.PullConsumer(cluster.namesrv_addr, group="look") as reader:
        return sum(reader.max_offset(queue) for queue in reader.queues("orders"))


def test_one_run_copies_what_is_there_and_says_how_far(
    clusters: tuple[BlockingCluster, BlockingCluster],
) -> None:
    send(clusters[0], range(30))
    arguments = ["mirror", *addresses(clusters), "--topics", "orders", "--once"]
    arguments += ["--from-name", "east", "--to-name", "west"]
    planned = roquet(*arguments, "--dry-run", "--json")
    assert [json.loads(line)["topic"] for line in planned.stdout.splitlines()] == ["orders"] * 4
    assert "orders" not in roquet("topic", "ls", "-n", clusters[1].namesrv_addr).stdout
    for cluster in clusters:
        assert "roquet-mirror" not in roquet("group", "ls", "-n", cluster.namesrv_addr).stdout
    rows = [json.loads(line) for line in roquet(*arguments, "--json").stdout.splitlines()]
    assert sum(row["copied"] for row in rows) == 30
    assert {(row["fault"], row["lag"]) for row in rows} == {(None, 0)}
    assert bodies(clusters[1]) == bodies(clusters[0])
    again = roquet(*arguments)
    assert "0 messages copied, 0 behind" in again.stderr
    assert "broker-a:3" in again.stdout


def test_a_killed_mirror_goes_on_with_nothing_lost_or_doubled(
    clusters: tuple[BlockingCluster, BlockingCluster],
) -> None:
    send(clusters[0], range(200))
    command = [sys.executable, "-m", "roquet", "mirror", *addresses(clusters), "--rate", "400/s"]
    sent = 200
    while sent < COUNT:
        with subprocess.Popen(command, env={**os.environ}, stderr=subprocess.DEVNULL) as process:
            before = size(clusters[1])
            send(clusters[0], range(sent, sent + 1_000))
            sent += 1_000
            while size(clusters[1]) < before + 100:  # it is in the middle of its work
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
        assert size(clusters[1]) < sent
    assert roquet("mirror", *addresses(clusters), "--once").exit_code == 0
    source, target = bodies(clusters[0]), bodies(clusters[1])
    assert sum(map(len, source.values())) == COUNT
    assert target == source


def test_wrong_words_are_refused_with_what_to_do(
    clusters: tuple[BlockingCluster, BlockingCluster],
) -> None:
    source = clusters[0].namesrv_addr
    must_fail(UsageError, "are one cluster", "mirror", "--from", source, "--to", source)
    must_fail(UsageError, "there is no profile", "mirror", "--from", "nowhere", "--to", source)
    ended = invoke("mirror", *addresses(clusters), "--topics", "none*", "--once")
    assert isinstance(ended.exception, UsageError | SystemExit)
    assert "no topic none*" in f"{ended.exception}{ended.stderr}"
