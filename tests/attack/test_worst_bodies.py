"""The worst request of every code, and how long another client waits meanwhile.

A broker, a name server and a controller run in processes of their own. One connection asks for
something small again and again; its longest wait during an attack is compared with its longest wait
without one.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import worst_requests
from roquet.broker.handlers import HANDLERS
from roquet.broker.ingest.destination import QUEUES_MAX
from roquet.controller.handlers import HANDLERS as CONTROLLERS
from roquet.model.errors import CallError
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.namesrv.handlers import HANDLERS as NAME_SERVERS
from roquet.net.blocking import BlockingChannel
from roquet.wire.call import Call
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.admin.namesrv import GetNameServerSettings
from roquet.wire.calls.admin.stats import GetAllConsumeStats, GetTimeSpan, GetTopicStats
from roquet.wire.calls.admin.topic import CreateGroup, CreateGroups, CreateTopic, CreateTopics
from roquet.wire.calls.bodies import SubscriptionGroups, TopicConfigs
from roquet.wire.calls.controller import ApplyBrokerId, ElectMaster, GetReplicaInfo
from roquet.wire.calls.offset import MaxOffset, UpdateOffset
from roquet.wire.calls.send import Send
from roquet.wire.fastjson.codec import dumps
from roquet.wire.fields import encode_call

pytestmark = [pytest.mark.attack, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).resolve().parents[2]

FLOOR_MS = 5.0
"""An idle server's longest wait counts as so much at least: shorter ones are chance."""

RATIO_MAX = 25.0
"""Times that another client may wait longer than at an idle server."""

TRIES = 3
"""Of an attack that seems too strong: what another process did meanwhile does not come again."""

SAMPLE = (
    "compact zeros of 250 KB",
    "long words",
    "numbers of 200,000 digits",
    "body in loose JSON, 9,000 values",
    "body with many keys",
)
"""The shapes of the short form, one for each code in turn."""

BODIES_OF_SAMPLE = 2
"""Of each code in the short form."""

BROKER = """
import asyncio, sys
from pathlib import Path
from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.net.loop import run

async def main():
    config = BrokerConfig(host="127.0.0.1", port=0, vip_port=False, store_dir=Path(sys.argv[1]))
    async with BrokerServer(config) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()

run(main())
"""

NAME_SERVER = """
import asyncio, sys
from pathlib import Path
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.loop import run

async def main():
    config = NameServerConfig(host="127.0.0.1", port=0, directory=Path(sys.argv[1]))
    async with NameServer(config) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()

run(main())
"""


CONTROLLER = """
import asyncio, sys
from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.net.loop import run

async def main():
    config = ControllerConfig(host="127.0.0.1", port=0, store="file:" + sys.argv[1])
    async with ControllerServer(config) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()

run(main())
"""


class Target(NamedTuple):
    """A server that is attacked, and what another client asks it."""

    port: int
    question: Call[Any]


class LatencyProbe(threading.Thread):
    """Another client, which measures the longest wait for a reply."""

    def __init__(self, target: Target) -> None:
        super().__init__(daemon=True)
        self._target = target
        self.longest_ms = 0.0
        self.ended = False

    def run(self) -> None:
        with BlockingChannel(f"127.0.0.1:{self._target.port}", timeout_ms=60_000) as channel:
            while not self.ended:
                begun = time.perf_counter()
                with suppress(CallError):
                    channel.call(self._target.question)
                self.longest_ms = max(self.longest_ms, (time.perf_counter() - begun) * 1_000)
                time.sleep(0.002)


def longest_wait_ms(target: Target, frames: list[bytes] | None) -> float:
    """Another client's longest wait while these requests are sent; None: while nothing is."""
    victim = LatencyProbe(target)
    victim.start()
    time.sleep(0.05)
    if frames is None:
        time.sleep(1.0)
    else:
        attack(target.port, frames)
    victim.ended = True
    victim.join()
    return victim.longest_ms


def attack(port: int, frames: list[bytes]) -> None:
    """Send each over a connection of its own, and wait for the answer or the end."""
    for frame in frames:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer, suppress(OSError):
            peer.sendall(frame)
            size = peer.recv(4)
            if len(size) < 4:
                continue
            left = int.from_bytes(size, "big")
            while left > 0 and (data := peer.recv(min(left, 1 << 20))):
                left -= len(data)


def served(code: str, directory: Path) -> Iterator[int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, env=environment,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield int(process.stdout.readline())
        assert process.poll() is None, "it has died"
        process.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, depth: str) -> Iterator[Target]:
    """A broker with topics, groups and some messages."""
    for port in served(BROKER, tmp_path_factory.mktemp("broker")):
        count = 10_000 if depth == "full" else 2_000
        with BlockingChannel(f"127.0.0.1:{port}", timeout_ms=60_000) as channel:
            for number in range(0, count, 1_000):
                names = range(number, number + 1_000)
                topics = [TopicConfig(topic_name=f"topic-{n}") for n in names]
                channel.call(CreateTopics(body=dumps(TopicConfigs(topic_config_list=topics))))
                groups = [SubscriptionGroup(group_name=f"group-{n}") for n in names]
                body = dumps(SubscriptionGroups(group_config_list=groups))
                channel.call(CreateGroups(body=body))
            fields = worst_requests.fields(CreateTopic, topic_filter_type="SINGLE_TAG")
            channel.call(CreateTopic(**fields))
            fields = worst_requests.fields(Send, properties="KEYS\x01k\x02TAGS\x01tag\x02")
            for _ in range(500):
                channel.call(Send(body=b"x" * 100, **fields))
        yield Target(port, MaxOffset(topic=worst_requests.TOPIC, queue_id=0))


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    for port in served(NAME_SERVER, tmp_path_factory.mktemp("namesrv")):
        yield Target(port, GetNameServerSettings())


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A controller with a group of 50 brokers."""
    for port in served(CONTROLLER, tmp_path_factory.mktemp("controller")):
        name = str(worst_requests.KNOWN["broker_name"])
        with BlockingChannel(f"127.0.0.1:{port}", timeout_ms=60_000) as channel:
            for number in range(1, 51):
                channel.call(
                    ApplyBrokerId(
                        cluster_name="c",
                        broker_name=name,
                        applied_broker_id=number,
                        register_check_code=f"h:{number};1",
                    )
                )
            channel.call(ElectMaster(broker_name=name, broker_id=1))
        yield Target(port, GetReplicaInfo(broker_name=name))


def attacks(
    depth: str, served_calls: Collection[worst_requests.Kind]
) -> Iterator[tuple[str, list[bytes]]]:
    """The name and the requests of each attack."""
    for turn, kind in enumerate(worst_requests.every_call()):
        if kind in served_calls:
            names = SAMPLE[turn % len(SAMPLE) :][:1] if depth == "short" else worst_requests.SHAPES
            for name in names:
                yield f"{kind.__name__}: {name}", [worst_requests.SHAPES[name](kind)]
            if depth == "full":
                yield f"{kind.__name__}: as it is", [worst_requests.frame(kind)]
            bodies = worst_requests.BODIES.get(kind)
            count = None if depth == "full" else BODIES_OF_SAMPLE
            for number, body in enumerate(islice(bodies(kind) if bodies else (), count)):
                yield f"{kind.__name__}: worst {number}", [body]


def worst_ratios(
    target: Target, depth: str, served_calls: Collection[worst_requests.Kind]
) -> dict[str, float]:
    idle_ms = max(longest_wait_ms(target, None) for _ in range(3))
    idle_ms = max(idle_ms, FLOOR_MS)
    ratios: dict[str, float] = {}
    for name, frames in attacks(depth, served_calls):
        found: list[float] = []
        while len(found) < TRIES and min(found, default=RATIO_MAX) >= RATIO_MAX / 2:
            found.append(longest_wait_ms(target, frames) / idle_ms)
        ratios[name] = min(found)
    print(f"longest wait at an idle server: {idle_ms:.1f} ms; the worst ratios:")  # noqa: T201
    for name in sorted(ratios, key=lambda name: -ratios[name])[:SHOWN]:
        print(f"{ratios[name]:8.1f}  {name}")  # noqa: T201
    return ratios


SHOWN = int(os.environ.get("ATTACK_SHOWN", "5"))


def test_no_request_to_a_broker_holds_up_others(broker: Target, depth: str) -> None:
    ratios = worst_ratios(broker, depth, HANDLERS)
    assert {name: ratio for name, ratio in ratios.items() if ratio > RATIO_MAX} == {}


def test_no_request_to_a_name_server_holds_up_others(name_server: Target, depth: str) -> None:
    ratios = worst_ratios(name_server, depth, NAME_SERVERS)
    assert {name: ratio for name, ratio in ratios.items() if ratio > RATIO_MAX} == {}


def test_no_request_to_a_controller_holds_up_others(controller: Target, depth: str) -> None:
    ratios = worst_ratios(controller, depth, CONTROLLERS)
    assert {name: ratio for name, ratio in ratios.items() if ratio > RATIO_MAX} == {}


def test_no_request_about_a_large_state_holds_up_others(broker: Target) -> None:
    """As many queues as a topic may have, progress in many topics: each legal, and made before."""
    idle_ms = max(longest_wait_ms(broker, None), FLOOR_MS)
    ratios: dict[str, float] = {}
    for name, frame in large_state(broker.port).items():
        ratios[name] = longest_wait_ms(broker, [frame]) / idle_ms
        if ratios[name] > RATIO_MAX / 2:
            ratios[name] = min(ratios[name], longest_wait_ms(broker, [frame]) / idle_ms)
    assert {name: ratio for name, ratio in ratios.items() if ratio > RATIO_MAX} == {}


def large_state(port: int) -> dict[str, bytes]:
    """Make a large state; gives the requests that have to look at all of it."""
    wide = TopicConfig(topic_name="wide", read_queue_nums=QUEUES_MAX, write_queue_nums=QUEUES_MAX)
    many = [TopicConfig(topic_name=f"many{n}", read_queue_nums=90) for n in range(1_000)]
    group = worst_requests.GROUP
    with BlockingChannel(f"127.0.0.1:{port}", timeout_ms=60_000) as channel:
        channel.call(CreateTopics(body=dumps(TopicConfigs(topic_config_list=[wide, *many]))))
        channel.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=group))))
        for topic in (wide, *many):
            channel.call(
                UpdateOffset(
                    consumer_group=group, topic=topic.topic_name, queue_id=0, commit_offset=0
                )
            )
    calls: list[Call[Any]] = [
        GetTopicStats(topic="wide"),
        GetTimeSpan(topic="wide", group=group),
        GetAllConsumeStats(),
        GetConsumeStats(consumer_group=group),
        GetConsumeStats(consumer_group=group, topic="wide", with_owners=True),
        GetConsumeStats(consumer_group=group, topic_list="wide;" * 6_000),
        CreateTopics(body=dumps(TopicConfigs(topic_config_list=many))),
    ]
    return {
        f"{n} {type(call).__name__}": encode_call(call, opaque=1) for n, call in enumerate(calls)
    }
