import json
from collections.abc import Iterator

import pytest
from tests.cli.running import invoke, must_fail, roquet

from roquet.admin.topic_list import TopicSummary
from roquet.admin.topics import TopicBrokerInfo, TopicInfo, TopicQueueInfo
from roquet.cli.admin.topic import topic_parts, topic_table
from roquet.cli.terminal import output
from roquet.client import blocking
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(brokers=2, auto_create_topic=False) as cluster:
        roquet("topic", "create", "orders", "--queues", "2", "-n", cluster.namesrv_addr)
        with blocking.Producer(cluster.namesrv_addr) as producer:
            for _ in range(4):
                producer.send("orders", b"x")
        yield cluster.namesrv_addr


def test_a_topic_is_shown_with_its_brokers_and_queues(namesrv: str) -> None:
    lines = [
        line.split()
        for line in roquet("topic", "show", "orders", "-n", namesrv).output.splitlines()
    ]
    assert lines[0] == ["orders", "4", "messages"]
    assert lines[1] == ["read", "by:", "nobody"]
    assert ["broker-b", "2", "2", "RW"] in lines
    assert ["broker-a", "1", "0", "1", "1"] in [line[:5] for line in lines]
    topic_fields = json.loads(roquet("topic", "show", "orders", "--json", "-n", namesrv).output)
    assert (topic_fields["messages"], len(topic_fields["queues"])) == (4, 4)


def test_a_topic_is_shown_with_everything_known() -> None:
    place = TopicBrokerInfo(broker="broker-a", read_queues=1, write_queues=1, permission="RW")
    queue = TopicQueueInfo(broker="broker-a", queue_id=0, begin=0, end=12, stored_ms=None)
    topic = TopicInfo(
        name="orders",
        messages=12,
        places=[place],
        queues=[queue],
        groups=[],
        order_conf=None,
        problems=[],
    )
    headline, readers, *tables = topic_parts(topic)
    assert (headline, readers) == ("orders  12 messages", "read by: nobody")
    assert len(tables) == 2


def test_topics_are_listed_with_their_sizes(namesrv: str) -> None:
    head, *rows = roquet("topic", "ls", "-n", namesrv).output.splitlines()
    assert head.split() == ["topic", "queues", "messages", "in/s", "last", "stored"]
    (row,) = (row for row in rows if row.startswith("orders "))
    assert row.split()[1:4] == ["4", "4", "0.0"]
    assert "SELF_TEST_TOPIC" in roquet("topic", "ls", "--system", "-n", namesrv).output
    lines = roquet("topic", "ls", "--json", "-n", namesrv).output.splitlines()
    (orders,) = (one for one in map(json.loads, lines) if one["name"] == "orders")
    assert orders["brokers"] == ["broker-a", "broker-b"]
    assert (orders["queues"], orders["messages"]) == (4, 4)


def test_what_no_broker_tells_of_a_topic_is_not_zero() -> None:
    console = output.console()
    with console.capture() as captured:
        console.print(topic_table([TopicSummary(name="lost", brokers=[])]))
    assert captured.get().splitlines()[1].split() == ["lost", "?", "?", "?", "-"]


def test_a_topic_is_created_changed_and_deleted(namesrv: str) -> None:
    made = roquet(
        "topic", "create", "short", "--queues", "3", "--broker", "broker-a", "-n", namesrv
    )
    assert made.output == "short: 3 queues on each of broker-a\n"
    changed = roquet("topic", "update", "short", "--perm", "R", "-n", namesrv)
    assert changed.output == "short: changed on broker-a\n"
    shown = json.loads(roquet("topic", "show", "short", "--json", "-n", namesrv).output)
    assert [place["permission"] for place in shown["places"]] == ["R"]
    dry = roquet("topic", "delete", "short", "--dry-run", "-n", namesrv)
    assert dry.output.splitlines()[-1] == "nothing was changed (--dry-run)"
    refused = roquet("topic", "delete", "short", "-n", namesrv, typed="n\n")
    assert "deleted" not in refused.output
    assert refused.exit_code == 1, "scripts can tell"
    assert (
        "short: deleted on broker-a"
        in roquet("topic", "delete", "short", "-y", "-n", namesrv).output
    )
    must_fail(UsageError, "no broker has a topic 'short'", "topic", "show", "short", "-n", namesrv)
    must_fail(UsageError, "`roquet topic ls` lists all", "topic", "show", "xyz", "-n", namesrv)


def test_a_resize_to_fewer_queues_reports_what_happens_to_the_messages(namesrv: str) -> None:
    roquet("topic", "create", "shrinking", "--queues", "2", "-n", namesrv)
    with blocking.Producer(namesrv) as producer:
        for _ in range(4):
            producer.send("shrinking", b"x")
    resize = ("topic", "resize", "shrinking", "1", "--settle", "0", "-n", namesrv)
    dry = roquet(*resize, "--dry-run").output
    assert "broker-a: 2 queues to write and 2 to read, then 1" in dry
    assert "the queues from 1 on are removed at once; 2 stored messages in them" in dry
    assert roquet(*resize, "--yes").output.splitlines()[-1] == "shrinking: 1 queue on each broker"
    shown = json.loads(roquet("topic", "show", "shrinking", "--json", "-n", namesrv).output)
    assert {(p["read_queues"], p["write_queues"]) for p in shown["places"]} == {(1, 1)}


def test_wrong_use_is_an_error(namesrv: str) -> None:
    must_fail(
        UsageError, "RW, R, W or -", "topic", "update", "orders", "--perm", "X", "-n", namesrv
    )
    must_fail(UsageError, "say what is to be changed", "topic", "update", "orders", "-n", namesrv)
    must_fail(
        UsageError, "already on broker-a, broker-b", "topic", "create", "orders", "-n", namesrv
    )
    with pytest.raises(UsageError, match=r"'message.type=FIFO': \+name=value sets one"):
        roquet("topic", "create", "o2", "--attribute", "message.type=FIFO", "-n", namesrv)


def test_a_count_that_cannot_be_is_refused_before_anything_is_shown(namesrv: str) -> None:
    result = invoke("topic", "resize", "orders", "16385", "-n", namesrv)
    assert isinstance(result.exception, UsageError)
    assert "16385 queues: from 1 to 16384 are possible" in str(result.exception)
    assert result.output == ""


def test_one_queue_is_printed_in_the_singular(namesrv: str) -> None:
    made = roquet("topic", "create", "lone", "--queues", "1", "--broker", "broker-a", "-n", namesrv)
    assert made.output == "lone: 1 queue on each of broker-a\n"


def test_an_update_that_hides_messages_is_shown_and_asked_about(namesrv: str) -> None:
    roquet("topic", "create", "hidden", "--queues", "2", "--broker", "broker-a", "-n", namesrv)
    with blocking.Producer(namesrv) as producer:
        for _ in range(4):
            producer.send("hidden", b"x")
    update = ("topic", "update", "hidden", "-n", namesrv)
    fewer = (*update, "--read-queues", "1", "--write-queues", "3")
    dry = roquet(*fewer, "--dry-run").output.splitlines()
    assert dry[0] == "broker-a: 2 queues to write and 2 to read, then 3 and 1"
    assert "are delivered to nobody: 2 stored messages" in dry[1]
    assert dry[2] == "nothing was changed (--dry-run)"
    refused = roquet(*fewer, typed="n\n")
    assert refused.exit_code == 1
    assert "Change hidden?" in refused.output
    assert _counts(namesrv, "hidden") == {(2, 2)}
    assert roquet(*fewer, "--yes").output.splitlines()[-1] == "hidden: changed on broker-a"
    assert _counts(namesrv, "hidden") == {(1, 3)}
    harmless = roquet(*update, "--perm", "RW")
    assert harmless.output == "hidden: changed on broker-a\n", "what is hidden already stays so"


def test_changes_are_printed_as_json_and_the_rest_goes_to_stderr(namesrv: str) -> None:
    made = roquet("topic", "create", "told", "--queues", "2", "--json", "-n", namesrv)
    brokers = ["broker-a", "broker-b"]
    assert json.loads(made.stdout) == {"name": "told", "brokers": brokers, "changed": True}
    update = ("topic", "update", "told", "--read-queues", "1", "--json", "-n", namesrv)
    dry = roquet(*update, "--dry-run")
    assert json.loads(dry.stdout)["changed"] is False
    assert "then 2 and 1" in dry.stderr
    result = roquet(*update, typed="y\n")
    assert "Change told?" in result.stderr
    changed = json.loads(result.stdout.splitlines()[-1])  # the test's terminal shows what is typed
    assert changed["brokers"][0] == {"broker": "broker-a", "read_queues": 1, "write_queues": 2}
    assert (changed["hidden"], changed["changed"]) == (0, True)
    resize = ("topic", "resize", "told", "1", "--settle", "0", "--yes", "--json", "-n", namesrv)
    resized = json.loads(roquet(*resize).stdout)
    assert (resized["queues"], resized["brokers"], resized["changed"]) == (1, brokers, True)
    gone = json.loads(roquet("topic", "delete", "told", "-y", "--json", "-n", namesrv).stdout)
    assert gone == {
        "name": "told",
        "brokers": brokers,
        "messages": 0,
        "groups": [],
        "changed": True,
    }


def _counts(namesrv: str, name: str) -> set[tuple[int, int]]:
    shown = json.loads(roquet("topic", "show", name, "--json", "-n", namesrv).output)
    return {(place["read_queues"], place["write_queues"]) for place in shown["places"]}
