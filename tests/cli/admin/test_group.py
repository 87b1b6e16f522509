import json
from collections.abc import Iterator
from datetime import datetime

import pytest
from msgspec.structs import replace
from tests.cli.running import must_fail, roquet, wait_for_topic

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.group_info import BrokerDecision, GroupInfo, GroupMemberInfo, GroupQueueInfo
from roquet.admin.offset_reset import QueueReset
from roquet.cli.admin import group as group_commands
from roquet.client import blocking
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A cluster in which a group has read two of three messages, and is gone."""
    with BlockingCluster(default_queue_count=1) as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            for body in (b"a", b"b", b"c"):
                producer.send("orders", body)
        wait_for_topic(cluster.namesrv_addr, "orders")
        reading = ("consume", "orders", "--group", "billing", "--count", "2")
        assert roquet(*reading, "-n", cluster.namesrv_addr).output == "a\nb\n"
        yield cluster.namesrv_addr


def test_a_group_is_shown_queue_by_queue(namesrv: str) -> None:
    headline, head, *rows = roquet("group", "show", "billing", "-n", namesrv).output.splitlines()
    assert headline == "billing  0 members  lag 1"
    assert head.split() == ["topic", "broker", "queue", "owner", "committed", "end", "lag"]
    assert ["orders", "broker-a", "0", "nobody", "2", "3", "1"] in [row.split() for row in rows]


def test_a_live_group_is_shown_with_its_members(namesrv: str) -> None:
    with blocking.PushConsumer(namesrv, group="shipping", topic="orders") as consumer:
        consumer.next(5_000)
        lines = roquet("group", "show", "shipping", "-n", namesrv).output.splitlines()
        group = json.loads(roquet("group", "show", "shipping", "--json", "-n", namesrv).output)
    assert lines[0].startswith("shipping  CLUSTERING  1 member  lag ")
    (member,) = group["members"]
    assert member["language"] == "PYTHON"
    assert member["subscriptions"]["orders"] == "*"
    assert any(line.startswith(member["client_id"]) for line in lines)


def test_json_has_everything(namesrv: str) -> None:
    group = json.loads(roquet("group", "show", "billing", "--json", "-n", namesrv).output)
    assert (group["name"], group["lag"], group["members"]) == ("billing", 1, [])
    orders = [queue for queue in group["queues"] if queue["topic"] == "orders"]
    assert orders == [
        {
            "topic": "orders",
            "broker": "broker-a",
            "queue_id": 0,
            "owners": [],
            "committed": 2,
            "end": 3,
            "lag": 1,
            "fault": None,
        }
    ]


def test_groups_are_listed(namesrv: str) -> None:
    lines = roquet("group", "ls", "-n", namesrv).output.splitlines()
    assert lines[0].split() == ["group", "members", "lag", "dead", "letters"]
    assert ["billing", "0", "1", "0"] in [line.split() for line in lines]
    assert not any("TOOLS_CONSUMER" in line for line in lines)
    assert roquet("message", "find", "orders", "-n", namesrv).exit_code == 0
    lines = roquet("group", "ls", "-n", namesrv).output.splitlines()
    assert not any("roquet-cli" in line for line in lines)
    everything = roquet("group", "ls", "--system", "--json", "-n", namesrv).output.splitlines()
    assert "TOOLS_CONSUMER" in [json.loads(line)["name"] for line in everything]


def test_a_cluster_without_groups_says_so() -> None:
    with BlockingCluster() as cluster:
        assert roquet("group", "ls", "-n", cluster.namesrv_addr).output == "no group\n"


@pytest.mark.parametrize(
    ("time", "hint"),
    [("1795909285", "did you mean 1795909285000"), ("20261128", "did you mean 2026-11-28")],
)
def test_a_time_in_seconds_or_without_dashes_resets_nothing(
    namesrv: str, time: str, hint: str
) -> None:
    for line in (
        ("group", "reset", "billing", "--topic", "orders", "--to", time, "--yes"),
        ("message", "find", "orders", "--from", time),
        ("message", "find", "orders", "--to", time),
        ("consume", "orders", "--from", time),
    ):
        must_fail(UsageError, hint, *line, "-n", namesrv)
    lines = roquet("group", "show", "billing", "-n", namesrv).output.splitlines()
    assert lines[0] == "billing  0 members  lag 1"


def test_a_wrong_name_is_an_error_that_names_the_nearest_one(namesrv: str) -> None:
    must_fail(UsageError, "did you mean 'billing'", "group", "show", "biling", "-n", namesrv)
    with pytest.raises(ConnectFailed):
        roquet("group", "ls", "-n", "127.0.0.1:1")


def test_a_group_is_created_changed_and_deleted(namesrv: str) -> None:
    made = roquet("group", "create", "fresh", "--retries", "3", "-n", namesrv)
    assert made.output == "fresh: on broker-a\n"
    again = roquet("group", "create", "fresh", "--ordered", "--json", "-n", namesrv)
    assert json.loads(again.stdout) == {"name": "fresh", "brokers": ["broker-a"], "changed": True}
    ageing = ("group", "create", "fresh", "-n", namesrv, "--attribute")
    assert roquet(*ageing, "+priority.ageing.ms=60000").output == "fresh: on broker-a\n"
    must_fail(CallRefused, r"'soon' is no number from 0", *ageing, "+priority.ageing.ms=soon")
    must_fail(UsageError, "attribute format is wrong", *ageing, "priority.factor")
    dry = roquet("group", "delete", "fresh", "--dry-run", "--json", "-n", namesrv)
    changed = json.loads(dry.stdout)
    assert changed == {"name": "fresh", "lag": 0, "brokers": [], "changed": False}
    assert "fresh" in roquet("group", "ls", "-n", namesrv).output
    gone = roquet("group", "delete", "fresh", "--yes", "-n", namesrv).output
    assert gone.splitlines()[-1] == "fresh: deleted on broker-a"
    with pytest.raises(UsageError, match="unknown to every broker"):
        roquet("group", "delete", "fresh", "--yes", "-n", namesrv)


def test_a_group_is_reset_after_a_preview(namesrv: str) -> None:
    reset = ("group", "reset", "audit", "-t", "orders", "--to", "last", "-n", namesrv)
    must_fail(UsageError, r"'audit' is unknown to every broker.* \(--create makes", *reset, "--yes")
    new = "no broker knows group 'audit' yet: it is made"
    assert new in roquet(*reset, "--create", "--dry-run").output.splitlines()
    assert "audit" not in roquet("group", "ls", "-n", namesrv).output
    roquet("group", "create", "audit", "-n", namesrv)
    dry = [line.split() for line in roquet(*reset, "--dry-run").output.splitlines()]
    assert dry[0] == ["broker", "queue", "now", "then", "again", "skipped"]
    assert dry[1] == ["broker-a", "0", "-", "3", "0", "3"]
    assert roquet(*reset, "--yes").output.splitlines()[-1] == "audit: goes on there"
    back = ("group", "reset", "audit", "-t", "orders", "--to", "first", "--queue", "broker-a:0")
    reset_result = roquet(*back, "-n", namesrv, "--dry-run", "--json")
    assert json.loads(reset_result.stdout) == {
        "topic": "orders",
        "broker": "broker-a",
        "queue": 0,
        "now": 3,
        "then": 0,
        "again": 3,
        "skipped": 0,
        "changed": False,
    }
    assert "nothing was changed" in reset_result.stderr
    must_fail(UsageError, "BROKER:ID is wanted", *reset, "--queue", "nonsense")
    with pytest.raises(UsageError, match="--to: 'soon' is neither first nor last, no time"):
        roquet("group", "reset", "audit", "-t", "orders", "--to", "soon", "-n", namesrv)


def test_a_group_is_copied_after_a_preview(namesrv: str) -> None:
    fork = ("group", "fork", "billing", "--as", "replay", "-n", namesrv)
    dry = roquet(*fork, "--at", "first", "--dry-run").output.splitlines()
    assert [line.split() for line in dry[:2]] == [
        ["topic", "broker", "queue", "begins", "at", "messages"],
        ["orders", "broker-a", "0", "0", "3"],
    ]
    assert dry[2] == "replay begins with the oldest messages"
    assert "replay" not in roquet("group", "ls", "-n", namesrv).output
    made = roquet(*fork, "--at", "first", "--yes", "--json")
    assert json.loads(made.stdout) == {
        "group": "replay",
        "source": "billing",
        "topic": "orders",
        "broker": "broker-a",
        "queue": 0,
        "offset": 0,
        "messages": 3,
        "changed": True,
    }
    reading = ("consume", "orders", "--group", "replay", "--count", "3", "-n", namesrv)
    assert roquet(*reading).output == "a\nb\nc\n"
    must_fail(UsageError, "'replay' is there already", *fork, "--at", "first", "--yes")
    must_fail(UsageError, "--at: 'soon' is not first, no time", *fork, "--at", "soon")
    must_fail(UsageError, "2026", *fork, "--at", "20260131")
    roquet("group", "delete", "replay", "--yes", "-n", namesrv)


def test_a_time_of_day_is_the_last_one() -> None:
    now = datetime.fromisoformat("2026-01-31T12:00").astimezone()
    for text, moment in (
        ("11:30", "2026-01-31T11:30"),
        ("12:00:00", "2026-01-31T12:00"),
        ("14:00", "2026-01-30T14:00"),
        ("2026-01-30T14:00", "2026-01-30T14:00"),
    ):
        wanted = datetime.fromisoformat(moment).astimezone()
        assert group_commands.moment_ms(text, now) == wanted.timestamp() * 1000
    with pytest.raises(UsageError, match="--at: '2026-01-31T25:00' is no time"):
        group_commands.moment_ms("25:00", now)


def test_a_group_with_a_problem_sets_the_exit_code_to_1(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert roquet("group", "show", "billing", "-n", namesrv).exit_code == 0
    read_group = groups.show

    async def show_with_a_problem(admin: AdminClient, name: str) -> GroupInfo:
        return replace(await read_group(admin, name), problems=["members differ"])

    monkeypatch.setattr(groups, "show", show_with_a_problem)
    shown = roquet("group", "show", "billing", "-n", namesrv)
    assert shown.exit_code == 1
    assert shown.output.splitlines()[-1] == "! members differ"
    assert roquet("group", "show", "billing", "--json", "-n", namesrv).exit_code == 1


def test_a_group_with_members_is_not_deleted(namesrv: str) -> None:
    with blocking.PushConsumer(namesrv, group="busy", topic="orders") as consumer:
        consumer.next(5_000)
        with pytest.raises(UsageError, match="group 'busy' has 1 member: stop them first"):
            roquet("group", "delete", "busy", "--yes", "-n", namesrv)


def test_a_group_that_is_switched_off_says_so_and_how_to_switch_it_on(namesrv: str) -> None:
    roquet("group", "create", "resting", "--no-enabled", "-n", namesrv)
    shown = roquet("group", "show", "resting", "-n", namesrv)
    assert shown.exit_code == 1
    assert shown.output.splitlines()[-1] == (
        "! disabled on broker-a: its members get no messages; "
        "`roquet group create resting --enabled` lets them"
    )
    group = json.loads(roquet("group", "show", "resting", "--json", "-n", namesrv).output)
    assert group["disabled_on"] == ["broker-a"]
    lines = roquet("group", "ls", "-n", namesrv).output.splitlines()
    assert ["resting", "0", "0", "0", "disabled"] in [line.split() for line in lines]
    roquet("group", "create", "resting", "--enabled", "-n", namesrv)
    assert roquet("group", "show", "resting", "-n", namesrv).exit_code == 0


def group(**fields: object) -> GroupInfo:
    queue = GroupQueueInfo(
        topic="orders",
        broker="broker-a",
        queue_id=0,
        owners=[],
        committed=2,
        end=3,
        lag=1,
        fault="no owner",
    )
    known = {
        "name": "billing",
        "message_model": None,
        "consume_type": None,
        "lag": 1_000,
        "members": [],
        "queues": [queue],
        "assignments": [BrokerDecision(topic="orders", strategy="MACHINE", number=7)],
        "problems": ["orders broker-a queue 0 has no owner"],
    }
    return GroupInfo(**{**known, **fields})  # type: ignore[arg-type]


def test_a_group_is_shown_with_its_decisions_and_problems() -> None:
    first, decision, table, problem = group_commands.group_parts(group())
    assert first == "billing  0 members  lag 1,000"
    assert decision == "orders: MACHINE, decision 7 of its broker"
    assert table.row_count == 1
    assert str(problem) == "! orders broker-a queue 0 has no owner"


def test_members_are_shown_with_their_versions_and_what_they_report() -> None:
    member = GroupMemberInfo(
        client_id="c1",
        address="10.0.0.7:5000",
        language="JAVA",
        version=513,
        subscriptions={"orders": "red"},
        strategy=None,
    )
    by_grpc = replace(member, client_id="c2", release="5.2.0", properties={"app": "billing"})
    for members, columns in (((member,), 6), ((member, by_grpc), 7)):
        _, _, table, _, _ = group_commands.group_parts(group(members=list(members)))
        assert len(table.columns) == columns
        cells = [list(column.cells) for column in table.columns]
        assert cells[3] == ["5.5.0", "5.2.0"][: len(members)]
        assert columns == 6 or cells[6] == ["", "app=billing"]


def test_the_headline_of_a_group_names_its_message_model() -> None:
    line = group_commands.headline(group(message_model="BROADCASTING"))
    assert line == "billing  BROADCASTING  0 members  lag 1,000"


def test_a_move_has_the_same_fields_in_text_and_json() -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    move = QueueReset(queue=queue, committed=None, target=3, begin=1, end=3, time_ms=-1)
    assert group_commands.reset_fields(move) == {
        "topic": "orders",
        "broker": "broker-a",
        "queue": 1,
        "now": None,
        "then": 3,
        "again": 0,
        "skipped": 2,
    }
    cells = [list(column.cells) for column in group_commands.reset_table([move]).columns]
    assert cells == [["broker-a"], ["1"], ["-"], ["3"], ["0"], ["2"]]
