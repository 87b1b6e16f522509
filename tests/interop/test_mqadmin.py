"""The genuine mqadmin 5.5.0 says of our broker what it says of the genuine one.

The same scenario on both: a topic of four queues with ten messages, a producer and a member of a
group that are online, a group that is not and has progress. Each command of COMMANDS runs on both;
addresses, times, sizes, ids and rates are masked, all else has to be equal.
"""

import asyncio
import base64
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import genuine, processes
from harness.ports import free_port
from harness.servers import DevServer
from roquet.client import ConsumerConfig
from roquet.client.blocking import Producer, PushConsumer
from roquet.net.address import split_address
from roquet.net.channel import Channel
from roquet.wire.calls.offset import QueryOffset, UpdateOffset

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("AdminCommands.java")
TOPIC, GROUP, OFFLINE, SENDERS = "AdminOrders", "AdminBilling", "AdminAudit", "AdminShop"
QUEUES, MESSAGES = 4, 10
COMMIT_LOOKS_MAX = 100
"""Of a fifth of a second, on a machine that has other work."""

PROMPT = ConsumerConfig(save_period_ms=500)


class Command(NamedTuple):
    """What an operator types, and which lines of the answer count."""

    words: str
    """{broker} {address} {id} {offset_id} {folder} are put in for each side."""
    keep: str = ""
    """Only lines in which this pattern is found, where others' topics and groups are told, too."""
    in_order: bool = True
    """Whether the order of lines means something."""
    reads: str = ""
    """A file that the command writes: its content counts."""


OURS_ALONE = f"{TOPIC}|{GROUP}|{OFFLINE}"

COMMANDS: dict[str, Command] = {
    "allocateMQ": Command(f"allocateMQ -t {TOPIC} -i 10.0.0.1"),
    "brokerConsumeStats": Command(
        "brokerConsumeStats -b {address}", keep=OURS_ALONE, in_order=False
    ),
    "brokerStatus": Command("brokerStatus -b {address}", keep=r"^[a-zA-Z]+ *:"),
    "clusterList": Command("clusterList"),
    "consumerConnection": Command(f"consumerConnection -g {GROUP}"),
    "consumerConnection offline": Command(f"consumerConnection -g {OFFLINE}"),
    "consumerProgress": Command("consumerProgress", keep=OURS_ALONE, in_order=False),
    "consumerProgress -g": Command(f"consumerProgress -g {GROUP}"),
    "consumerProgress -g -s": Command(f"consumerProgress -g {GROUP} -s false"),
    "consumerProgress offline": Command(f"consumerProgress -g {OFFLINE}"),
    "consumerProgress unknown": Command("consumerProgress -g AdminNobody"),
    "consumerProgress -t": Command(f"consumerProgress -g {GROUP} -t {TOPIC}"),
    "exportMetadata": Command(
        "exportMetadata -c DefaultCluster -t -f {folder}", reads="topic.json", keep=TOPIC
    ),
    "exportMetadata all": Command(
        "exportMetadata -c DefaultCluster -f {folder}",
        reads="metadata.json",
        keep=OURS_ALONE,
        in_order=False,
    ),
    "exportMetrics": Command(
        "exportMetrics -c DefaultCluster -f {folder}",
        reads="metrics.json",
        keep="Tps|OneDay|topicSize|groupSize|Version|PYTHON|Ratio",
    ),
    "exportConfigs": Command(
        "exportConfigs -c DefaultCluster -f {folder}",
        reads="configs.json",
        keep="Size|brokerId|flushDiskType|brokerRole|autoCreate|fileReservedTime|ClusterName",
        in_order=False,
    ),
    "consumerStatus": Command(f"consumerStatus -g {GROUP}"),
    "getConsumerConfig": Command(f"getConsumerConfig -g {GROUP}"),
    "haStatus": Command("haStatus -b {address}"),
    "printMsg": Command(f"printMsg -t {TOPIC}", in_order=False),
    "printMsg -s": Command(f"printMsg -t {TOPIC} -s red", in_order=False),
    "printMsgByQueue": Command(f"printMsgByQueue -t {TOPIC} -a {{broker}} -i 1 -p true -d true"),
    "producer": Command("producer -b {address}", keep=SENDERS),
    "producerConnection": Command(f"producerConnection -g {SENDERS} -t {TOPIC}"),
    "producerConnection unknown": Command(f"producerConnection -g AdminNobody -t {TOPIC}"),
    "queryCq": Command(f"queryCq -t {TOPIC} -q 1 -i 0 -c 2 -b {{address}}"),
    "queryCq -g": Command(f"queryCq -t {TOPIC} -q 1 -i 0 -c 9 -b {{address}} -g {GROUP}"),
    "queryCq unknown": Command(f"queryCq -t {TOPIC} -q 99 -i 0 -c 9 -b {{address}}"),
    "queryMsgById": Command(f"queryMsgById -i {{offset_id}} -t {TOPIC}"),
    "queryMsgByKey": Command(f"queryMsgByKey -t {TOPIC} -k key-1"),
    "queryMsgByKey unknown": Command(f"queryMsgByKey -t {TOPIC} -k nobody"),
    "queryMsgByOffset": Command(f"queryMsgByOffset -t {TOPIC} -b {{broker}} -i 1 -o 0"),
    "queryMsgByUniqueKey": Command(f"queryMsgByUniqueKey -i {{id}} -t {TOPIC}"),
    "statsAll": Command("statsAll", keep=OURS_ALONE, in_order=False),
    "statsAll -t": Command(f"statsAll -t {TOPIC}", in_order=False),
    "updateColdDataFlowCtrGroupConfig": Command(
        "updateColdDataFlowCtrGroupConfig -b {address} -g AdminCold -v 1000"
    ),
    "removeColdDataFlowCtrGroupConfig": Command(
        "removeColdDataFlowCtrGroupConfig -b {address} -g AdminCold"
    ),
    "topicClusterList": Command(f"topicClusterList -t {TOPIC}"),
    "topicList": Command("topicList", keep=f"{TOPIC}|%RETRY%{GROUP}", in_order=False),
    "topicList -c": Command("topicList -c", keep=TOPIC, in_order=False),
    "topicRoute": Command(f"topicRoute -t {TOPIC}"),
    "topicRoute unknown": Command("topicRoute -t AdminNothing"),
    "topicStatus": Command(f"topicStatus -t {TOPIC}"),
    "topicStatus unknown": Command("topicStatus -t AdminNothing"),
}
"""What operators use, by a name for the report."""

FAQ = (
    r"(See|For more information, please visit the url,) "
    r"https://rocketmq\.apache\.org/docs/bestPractice/06FAQ( for further details\.)?"
)
"""Where to read more: a genuine name server says so, and the client if the name server does not."""

MASKS: tuple[tuple[str, str], ...] = (
    (r"(?m)^\s+at .*\n?|^\s+\.\.\. \d+ more\n?", ""),
    (FAQ, "HELP"),
    (r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"),
    (r"\b1[78]\d{11}\b", "MS"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"/?\b(\d+\.){3}\d+:\d+(@\d+)?", "ADDRESS"),
    (r"\b(\d+\.){3}\d+@\S+", "CLIENT"),
    (r"\bV\d_\d_\d\b", "VERSION"),
    (r"(storeSize|commitLogOffset|physicOffset|physicSize|bodyCRC)=\d+", r"\1=N"),
    (r"(CommitLog Offset: +|#MasterCommitLogMaxOffset\s+)\d+", r"\1N"),
    (r"(@ID@)\d+", r"\1N"),
    (r"Topic Put TPS: .*|Consume TPS: .*", "TPS"),
    (r"[ \t]+", " "),
)
"""What differs from side to side and from run to run, and what stands for it."""

NUMBERS = {
    "allocateMQ": (r'"queueId":\d', "QUEUE"),
    "brokerStatus": (r"(?m)^(\w+) : .*", r"\1"),
    "clusterList": (r"VERSION.*", "VERSION"),
    "consumerProgress": (r"(?m)( MODEL| CLUSTERING).*", r"\1"),
    "exportMetrics": (r':"?[\d.]+"?', ":N"),
    "statsAll": (r"\d+\.\d+ .*", "RATES"),
    "statsAll -t": (r"\d+\.\d+ .*", "RATES"),
}
"""More that is measured, by command: the kinds of what is told have to be equal."""


class MqAdmin:
    """The genuine mqadmin in one JVM."""

    def __init__(self, home: Path) -> None:
        self.home = home
        options = [f"-Duser.home={home}", "-Xmx256m", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
        with (home / "stderr").open("wb") as errors:
            self.child = subprocess.Popen(
                ["java", *options, "-cp", f"{genuine.jars()}/*", str(PROGRAM)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=home,
                env={**os.environ, "HOME": str(home), "ROCKETMQ_HOME": str(home)},
            )  # fmt: skip

    def __call__(self, words: str) -> str:
        """What a command prints."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        line = b" ".join(base64.b64encode(word.encode()) for word in words.split())
        self.child.stdin.write(line + b"\n")
        self.child.stdin.flush()
        for answer in self.child.stdout:
            if answer.startswith(b"= "):
                return base64.b64decode(answer[2:]).decode()
        raise RuntimeError(f"mqadmin {words}: the JVM is gone")

    def close(self) -> None:
        """End it."""
        processes.stop(self.child)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()


class ClusterUnderTest(NamedTuple):
    """One cluster with the scenario, and the mqadmin that asks it."""

    namesrv: str
    broker: str
    address: str
    folder: Path
    admin: MqAdmin
    names: dict[str, str]

    def run(self, command: Command) -> str:
        """What a command says here."""
        words = command.words.format(
            broker=self.broker, address=self.address, folder=self.folder, **self.names
        )
        text = self.admin(f"{words} -n {self.namesrv}")
        if command.reads:
            text = (self.folder / command.reads).read_text("utf-8").replace("},", "},\n")
        return text


async def progress(address: str) -> int:
    """How many messages the member has handled, as its broker knows."""
    async with await Channel.connect(*split_address(address)) as channel:
        answers = [
            await channel.call(QueryOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id))
            for queue_id in range(QUEUES)
        ]
    return sum(answer.offset for answer in answers)


async def commit_offline(address: str) -> None:
    """The group that is not online has handled the first message of each queue."""
    async with await Channel.connect(*split_address(address)) as channel:
        for queue_id in range(QUEUES):
            await channel.call(
                UpdateOffset(
                    consumer_group=OFFLINE, topic=TOPIC, queue_id=queue_id, commit_offset=1
                )
            )


@contextmanager
def scenario(namesrv: str, broker: str, address: str, admin: MqAdmin) -> Iterator[ClusterUnderTest]:
    """The scenario, until the block ends."""
    names: dict[str, str] = {}
    with ExitStack() as stack:
        side = ClusterUnderTest(namesrv, broker, address, admin.home, admin, names)
        admin(f"updateTopic -c DefaultCluster -t {TOPIC} -r {QUEUES} -w {QUEUES} -n {namesrv}")
        for group in (GROUP, OFFLINE):
            admin(f"updateSubGroup -c DefaultCluster -g {group} -n {namesrv}")
        producer = stack.enter_context(Producer(namesrv, group=SENDERS))
        receipts = [
            producer.send(
                TOPIC, b"body %d" % n, tag=("red", "blue")[n % 2], keys=(f"key-{n}",),
                order_key=str(n),
            )
            for n in range(MESSAGES)
        ]  # fmt: skip
        names["id"] = receipts[1].message_id
        names["offset_id"] = receipts[1].offset_message_id or ""
        consumer = stack.enter_context(
            PushConsumer(namesrv, group=GROUP, topic=TOPIC, config=PROMPT)
        )
        for _ in range(MESSAGES):
            message = consumer.next(timeout_ms=30_000)
            assert message is not None
            message.ack()
        asyncio.run(commit_offline(address))
        for _ in range(COMMIT_LOOKS_MAX):
            if asyncio.run(progress(address)) == MESSAGES:
                break
            time.sleep(0.2)
        yield side


@pytest.fixture(scope="module")
def admins(
    java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MqAdmin, MqAdmin]]:
    """One for each side: they start while others do."""
    both = MqAdmin(tmp_path_factory.mktemp("admin")), MqAdmin(tmp_path_factory.mktemp("admin"))
    yield both
    for admin in both:
        admin.close()


@pytest.fixture(scope="module")
def genuine_side(
    admins: tuple[MqAdmin, MqAdmin], theirs: genuine.Genuine
) -> Iterator[ClusterUnderTest]:
    with scenario(theirs.namesrv, "genuine-a", theirs.broker, admins[0]) as side:
        yield side


@pytest.fixture(scope="module")
def our_side(
    admins: tuple[MqAdmin, MqAdmin], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterUnderTest]:
    folder = tmp_path_factory.mktemp("dev")
    port = free_port()
    options = "--data", str(folder / "data"), "--advertise", f"127.0.0.1:{port}"
    with (
        DevServer(folder, *options, broker_port=port) as server,
        scenario(server.address, "broker-a", server.broker, admins[1]) as side,
    ):
        yield side


def masked(name: str, output: str, broker: str) -> list[str]:
    """The lines of an answer that count, without what may differ."""
    command = COMMANDS[name]
    output = output.replace(broker, "BROKER")
    for pattern, text in (*MASKS, *([NUMBERS[name]] if name in NUMBERS else [])):
        output = re.sub(pattern, text, output)
    output = re.sub(r"\{([^{}]*=[^{}]*)\}", lambda m: f"{{{sorted(m[1].split(', '))}}}", output)
    lines = [line.strip() for line in output.splitlines() if re.search(command.keep, line)]
    return lines if command.in_order else sorted(lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_same_for_our_broker_as_for_apaches(
    genuine_side: ClusterUnderTest, our_side: ClusterUnderTest, name: str
) -> None:
    command = COMMANDS[name]
    theirs = masked(name, genuine_side.run(command), genuine_side.broker)
    ours = masked(name, our_side.run(command), our_side.broker)
    assert theirs, "the pattern of what to keep finds nothing"
    assert ours == theirs
