"""Failover with Apache RocketMQ 5.5.0: our brokers obey its controller, its broker obeys ours."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.elected_group import (
    CLUSTER,
    FILE_SIZE,
    GROUP,
    SMALL,
    WAIT_S,
    add_brokers,
    apaches_controller,
    in_sync,
    master_of,
    our_controller,
    wait_until,
)

from harness import genuine
from harness.ports import free_port
from harness.processes import Process
from roquet.broker.app import BrokerServer
from roquet.client.blocking import Producer
from roquet.controller.app import ControllerServer
from roquet.model.errors import CallError
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

TOPIC = "Elected"


def send_until_acknowledged(producer: Producer, bodies: Sequence[bytes]) -> None:
    """Send each message until it is acknowledged, perhaps stored twice."""
    for body in bodies:
        for _ in range(WAIT_S * 5):
            try:
                if producer.send(TOPIC, body).ok:
                    break
            except CallError:
                pass
            time.sleep(0.2)
        else:
            raise AssertionError(f"nobody takes {body!r}")


def bodies_in(server: BrokerServer) -> set[bytes]:
    """Bodies of a broker's messages, found in the bytes of its log."""
    raw = server.broker.log.store.raw
    data = b"".join(bytes(raw.read(at, FILE_SIZE)) for at in range(raw.begin, raw.end, FILE_SIZE))
    return set(re.findall(rb"<([ab]\d+)>", data))


def numbered(letter: str, count: int = 30) -> list[bytes]:
    return [f"<{letter}{number}>".encode() for number in range(count)]


def kept(bodies: Sequence[bytes]) -> set[bytes]:
    return {body[1:-1] for body in bodies}


def test_our_brokers_fail_over_under_apaches_controller(tmp_path: Path) -> None:
    with (
        apaches_controller(tmp_path / "controller") as address,
        BlockingCluster(0, 1, tmp_path, **SMALL) as running,
    ):
        add_brokers(running, tmp_path, address, 3)
        wait_until(lambda: in_sync(master_of(running.brokers)) == 3, "the set is not complete")
        with Producer(running.namesrv_addr, group="elected") as producer:
            first = numbered("a")
            send_until_acknowledged(producer, first)
            old = master_of(running.brokers)
            assert old is not None
            index = list(running.brokers).index(old)
            running.stop_broker(index)
            left = [server for server in running.brokers if server is not old]
            wait_until(lambda: master_of(left) is not None, "nobody leads")
            second = numbered("b")
            send_until_acknowledged(producer, second)
            for server in left:
                wait_until(
                    lambda server=server: bodies_in(server) >= kept(first) | kept(second),  # type: ignore[misc]
                    "a message is lost",
                )
            running.start_broker(index)
            wait_until(lambda: in_sync(master_of(running.brokers)) == 3, "it has not come back")
            assert bodies_in(running.brokers[index]) >= kept(first) | kept(second)


def test_a_broker_of_ours_takes_over_from_one_of_apaches_under_our_controller(
    tmp_path: Path,
) -> None:
    with (
        BlockingCluster(0, 1, tmp_path, **SMALL) as running,
        our_controller(running) as controller,
    ):
        folder = tmp_path / "theirs"
        with apaches_broker(folder, running.namesrv_addr, controller.address) as theirs:
            add_brokers(running, tmp_path, controller.address, 2)
            with Producer(running.namesrv_addr, group="elected") as producer:
                first = numbered("a")
                send_until_acknowledged(producer, first)  # two logs at least have each
                for server in running.brokers:
                    wait_until(
                        lambda server=server: bodies_in(server) >= kept(first),  # type: ignore[misc]
                        "our replica does not follow",
                    )
                wait_until(lambda: group_size(controller) == 3, "the set is not complete")
                theirs.kill()
                wait_until(lambda: master_of(running.brokers) is not None, "nobody leads")
                master = master_of(running.brokers)
                assert master is not None
                assert bodies_in(master) >= kept(first)
                second = numbered("b")
                send_until_acknowledged(producer, second)
                assert bodies_in(master) >= kept(first) | kept(second)


def group_size(controller: ControllerServer) -> int:
    """Members of the group's sync-state set."""
    state = controller.controller.leadership.state
    group = state.group(GROUP) if state is not None else None
    return len(group.in_sync) if group is not None else 0


@contextmanager
def apaches_broker(folder: Path, namesrv: str, controller: str) -> Iterator[Any]:
    """A broker of Apache's that a controller gives its role."""
    folder.mkdir()
    settings = {
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(free_port()),
        "haListenPort": str(free_port()),
        "namesrvAddr": namesrv,
        "controllerAddr": controller,
        "enableControllerMode": "true",
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": "2",
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "mappedFileSizeConsumeQueue": "20000",
    }
    (folder / "broker.conf").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    command = genuine.java("broker.BrokerStartup", "-c", str(folder / "broker.conf"))
    log, home = folder / "broker.log", folder / "home"
    with Process(command, log, ready="boot success", home=home) as child:
        yield child
