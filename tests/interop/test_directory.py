"""One data directory, opened in turn by our broker and by Apache RocketMQ 5.5.0."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import genuine
from roquet.client.blocking import Producer, PullConsumer
from roquet.model.message import Message

pytestmark = pytest.mark.interop
TOPIC = "InTurn"


@contextlib.contextmanager
def ours_on(data: Path, tmp_path: Path, *, killed: bool) -> Iterator[str]:
    """Our broker on a directory, ended in good order or not."""
    ports = genuine.free_port(), genuine.free_port()
    command = [sys.executable, "-m", "roquet", "dev", "--data", str(data)]
    command += ["--namesrv-port", str(ports[0]), "--port", str(ports[1])]
    log = tmp_path / "dev.log"
    log.unlink(missing_ok=True)
    with genuine.process(command, tmp_path / "home", log) as child:
        genuine.wait_for(log, "ready", child)
        yield f"127.0.0.1:{ports[0]}"
        if killed:
            child.send_signal(signal.SIGKILL)
            child.wait()


def send(namesrv: str, first: int, count: int) -> None:
    with Producer(namesrv, group="in-turn") as producer:
        for number in range(first, first + count):
            key = f"key{number}"
            assert producer.send(Message(TOPIC, b"body %d" % number, keys=(key,))).ok


def bodies(namesrv: str) -> list[str]:
    found: list[str] = []
    with PullConsumer(namesrv, group="in-turn") as consumer:
        for queue in consumer.queues(TOPIC):
            offset, end = 0, consumer.max_offset(queue)
            while offset < end:
                got = consumer.pull(queue, offset, 32)
                assert [m.queue_offset for m in got.messages] == list(
                    range(offset, offset + len(got.messages))
                )
                found += [m.body.decode() for m in got.messages]
                offset = got.next_offset
    return sorted(found, key=lambda body: int(body.split()[1]))


@pytest.mark.parametrize("killed", [False, True])
def test_each_goes_on_where_the_other_stopped(java: None, tmp_path: Path, killed: bool) -> None:
    data = tmp_path / "genuine" / "store"
    with ours_on(data, tmp_path, killed=killed) as namesrv:
        send(namesrv, 0, 100)
    with genuine.cluster(tmp_path / "genuine") as running:
        assert bodies(running.namesrv) == [f"body {n}" for n in range(100)]
        send(running.namesrv, 100, 100)
    with ours_on(data, tmp_path, killed=False) as namesrv:
        assert bodies(namesrv) == [f"body {n}" for n in range(200)]
        send(namesrv, 200, 10)
        assert bodies(namesrv) == [f"body {n}" for n in range(210)]
