"""Read tasks hold everything that a worker needs."""

import gc
import pickle
from typing import Any

import msgspec
import pytest
from pyspark.sql.datasource import InputPartition
from tests.spark.conftest import CannedCluster

from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import CallRefused, ConfigError
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.session import CORES_VARIABLE
from roquet.spark.source import tasks
from roquet.spark.source.tasks import BrokerUnavailable, ReadTask, plan_tasks, read_task
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import CheckClientBody, ClientConnection, ConsumerConnection
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps, loads

SETTINGS = SourceOptions(namesrv=("namesrv:9876",), topics=("orders",), max_partitions=4)
PIECES = [OffsetRange("orders", "broker-a", 0, 0, 100_000)]


def test_a_task_survives_the_way_to_a_worker() -> None:
    (task,) = plan_tasks(
        SETTINGS, [OffsetRange("orders", "broker-a", 0, 0, 3)], {"broker-a": "broker-a:10911"}
    )
    copy = pickle.loads(pickle.dumps(task))
    assert isinstance(copy, ReadTask)
    assert (copy.value, copy.addresses) == (task.value, task.addresses)


def test_there_are_as_many_tasks_as_are_allowed_and_worth_it() -> None:
    assert len(plan_tasks(SETTINGS, PIECES, {})) == 4
    assert len(plan_tasks(SETTINGS, [OffsetRange("orders", "a", 0, 0, 9)], {})) == 1
    assert plan_tasks(SETTINGS, [], {}) == []


def test_a_worker_reads_with_the_addresses_of_its_task(canned: CannedCluster) -> None:
    canned.send("broker-a", 1, b"one", b"two")
    (task,) = plan_tasks(SETTINGS, [OffsetRange("orders", "broker-a", 1, 0, 2)], canned.addresses)
    (batch,) = read_task(SETTINGS, ("body",), task)
    assert batch.to_pydict() == {"body": [b"one", b"two"]}
    assert not [call for call in canned.calls if isinstance(call, GetRoute)]


def test_the_partition_that_spark_makes_for_nothing_is_empty() -> None:
    assert list(read_task(SETTINGS, ("body",), InputPartition(None))) == []


def test_what_a_worker_has_loaded_is_kept_out_of_the_collections_after_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = list[int]()
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    tasks.freeze_loaded.cache_clear()
    for _ in range(3):
        assert list(read_task(SETTINGS, ("body",), InputPartition(None))) == []
    assert frozen == [1]


def test_there_are_more_tasks_where_one_would_get_more_rows_than_it_may() -> None:
    few = msgspec.structs.replace(SETTINGS, max_partitions=2, max_records_per_partition=1000)
    tasks = plan_tasks(few, [OffsetRange("orders", "a", 0, 0, 9_500)], {})
    assert len(tasks) == 10
    assert max(sum(map(len, task.value)) for task in tasks) <= 1000


def test_a_task_whose_broker_is_away_waits_and_fails_with_advice(canned: CannedCluster) -> None:
    canned.send("broker-a", 1, b"one")
    (task,) = plan_tasks(SETTINGS, [OffsetRange("orders", "broker-a", 1, 0, 1)], canned.addresses)
    canned.addresses["broker-a"] = "elsewhere:1"
    impatient = msgspec.structs.replace(SETTINGS, timeout_ms=0)
    with pytest.raises(
        BrokerUnavailable, match="reads 'orders' on 'broker-a' got no answer within 0 s: "
    ):
        list(read_task(impatient, ("body",), task))


def test_a_task_whose_broker_refuses_until_the_timeout_fails_with_advice(
    canned: CannedCluster,
) -> None:
    """A former master refuses so until the name server knows the new one."""
    (task,) = plan_tasks(SETTINGS, [OffsetRange("orders", "broker-a", 1, 0, 1)], canned.addresses)
    canned.failures.append(CallRefused(ResponseCode.SYSTEM_BUSY, "this broker is a replica"))
    impatient = msgspec.structs.replace(SETTINGS, timeout_ms=0)
    with pytest.raises(BrokerUnavailable, match=r"got no answer within 0 s: .* is a replica"):
        list(read_task(impatient, ("body",), task))


def test_a_refusal_is_raised_unchanged(canned: CannedCluster) -> None:
    (task,) = plan_tasks(SETTINGS, [OffsetRange("orders", "broker-a", 1, 0, 1)], canned.addresses)
    canned.failures.append(CallRefused(ResponseCode.NO_PERMISSION, "not for you"))
    with pytest.raises(CallRefused, match="not for you"):
        list(read_task(SETTINGS, ("body",), task))


UNBOUNDED = SourceOptions(namesrv=("namesrv:9876",), topics=("orders",))
LARGE = [OffsetRange("orders", "broker-a", 0, 0, 4_000_000)]


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's machine has two cores."""
    monkeypatch.setattr(tasks, "cpu_count", lambda: 2)
    monkeypatch.delenv(CORES_VARIABLE, raising=False)


@pytest.mark.usefixtures("small_machine")
def test_a_batch_is_split_for_the_cores_of_the_session() -> None:
    assert len(plan_tasks(UNBOUNDED, LARGE, {}, cores=16)) == 16
    assert len(plan_tasks(UNBOUNDED, LARGE, {}, cores=1)) == 1
    assert len(plan_tasks(SETTINGS, LARGE, {}, cores=16)) == 4, "maxPartitions is the user's"


@pytest.mark.usefixtures("small_machine")
def test_the_cores_of_a_local_session_come_with_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES_VARIABLE, "3")
    assert len(plan_tasks(UNBOUNDED, LARGE, {})) == 3
    assert len(plan_tasks(UNBOUNDED, LARGE, {}, cores=16)) == 16


@pytest.mark.usefixtures("small_machine")
def test_where_the_cores_are_unknown_a_large_batch_is_split_by_size() -> None:
    """A cluster may have more cores than the driver, and its planner cannot ask."""
    assert len(plan_tasks(UNBOUNDED, LARGE, {})) == 8
    assert len(plan_tasks(UNBOUNDED, [OffsetRange("orders", "a", 0, 0, 100_000)], {})) == 2


def test_a_worker_with_another_roquet_than_the_planner_refuses(canned: CannedCluster) -> None:
    (task,) = plan_tasks(SETTINGS, [OffsetRange("orders", "broker-a", 1, 0, 2)], canned.addresses)
    task.roquet = "9.9"
    with pytest.raises(ConfigError, match=r"has Roquet 0\..*, and the driver .* has 9\.9: install"):
        list(read_task(SETTINGS, ("body",), task))


def check(canned: CannedCluster, answer: object, **settings: Any) -> list[Any]:
    """The questions that brokers were asked, beside what they hold."""
    checks = list[Any]()

    def answering(_broker: str, call: Call[Any]) -> Any:
        checks.append(call)
        if isinstance(answer, Exception):
            raise answer
        return Reply(body=dumps(answer))

    canned.reply_with(GetConnections | CheckSubscription, answering)
    settings = {"namesrv": (canned.namesrv,), "topics": ("orders",), **settings}
    cluster = ClusterClient(SourceOptions(**settings))
    cluster.bounds()
    tasks.check_read(cluster)
    return checks


MEMBERS = ConsumerConnection(
    connection_set=[ClientConnection(client_id="b@1", client_addr="b:1"),
                    ClientConnection(client_id="a@1", client_addr="a:1")]
)  # fmt: skip


def test_a_plain_read_asks_for_nothing(canned: CannedCluster) -> None:
    assert check(canned, MEMBERS) == []


def test_a_group_that_has_members_is_refused(canned: CannedCluster) -> None:
    with pytest.raises(ConfigError, match="group 'billing' is used by consumers \\(a@1, b@1\\)"):
        check(canned, MEMBERS, group="billing")


def test_unless_it_is_shared(canned: CannedCluster) -> None:
    assert check(canned, MEMBERS, group="billing", share_group=True) == []


@pytest.mark.parametrize(
    "answer",
    [
        CallRefused(ResponseCode.CONSUMER_NOT_ONLINE, "not online"),
        CallRefused(ResponseCode.SYSTEM_ERROR, "the consumer group not exist"),
        ConsumerConnection(),
    ],
)
def test_a_group_without_members_is_accepted(canned: CannedCluster, answer: object) -> None:
    assert [call.consumer_group for call in check(canned, answer, group="g")] == ["g", "g"]


def test_another_refusal_is_raised(canned: CannedCluster) -> None:
    with pytest.raises(CallRefused, match="not you"):
        check(canned, CallRefused(ResponseCode.NO_PERMISSION, "not you"), group="g")


def test_a_broker_that_does_not_filter_is_named_with_its_reason(canned: CannedCluster) -> None:
    refused = CallRefused(ResponseCode.SYSTEM_ERROR, "does not support SQL92")
    text = "broker 'broker-a' does not filter by this expression: does not support SQL92; .*enableP"
    with pytest.raises(ConfigError, match=text):
        check(canned, refused, sql92="a > 1")


def test_every_broker_is_asked_whether_it_filters(canned: CannedCluster) -> None:
    checks = check(canned, {}, sql92="a > 1")
    bodies = [loads(call.body, CheckClientBody).subscription_data for call in checks]
    subscriptions = [(body.topic, body.sub_string, body.expression_type) for body in bodies if body]
    assert subscriptions == [("orders", "a > 1", "SQL92")] * 2
