from typing import Any

from msgspec.structs import replace

from roquet.admin.brokers import BrokerStatus
from roquet.admin.group_info import GroupInfo
from roquet.admin.replicas import ReplicaStatus
from roquet.dashboard.facts.cluster_overview import (
    broker_lines,
    letter_lines,
    recent_changes,
    visible_jobs,
    visible_sample,
)
from roquet.dashboard.sampling.history import GroupHistory
from roquet.dashboard.sampling.jobs import JobFacts, JobRow
from roquet.dashboard.sampling.role_changes import ClusterEvent
from roquet.dashboard.sampling.sampler import ClusterSample, TopicSample
from roquet.dashboard.security.audit_log import AuditEntry, AuditOutcome
from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    Match,
    PolicyEntry,
    PolicyType,
    ResourcePattern,
    ResourceType,
    User,
)


def broker(name: str, number: int, address: str, **info: str) -> BrokerStatus:
    return BrokerStatus(cluster="c", broker=name, broker_id=number, address=address, info=info)


def replica(address: str, *, is_master: bool, is_in_sync: bool | None = True) -> ReplicaStatus:
    return ReplicaStatus(
        broker="a", broker_id=0, address=address, is_master=is_master, is_in_sync=is_in_sync
    )


def group(name: str, letters: int | None, left: int | None = None) -> GroupInfo:
    return GroupInfo(
        name=name, message_model=None, consume_type=None, lag=0, members=[], queues=[],
        assignments=[], problems=[], dead_letters=letters, dead_letters_not_resent=left,
    )  # fmt: skip


def test_a_broker_has_a_role_its_set_in_sync_and_its_load() -> None:
    values = {"putTps": "5 4 3", "getTransferredTps": "?", "commitLogDiskRatio": "0.5"}
    waits = {"sendThreadPoolQueueSize": "2", "pullThreadPoolQueueSize": "1"}
    found = [broker("a", 0, "h:1", **values, **waits), broker("a", 1, "h:2")]
    statuses = [
        replica("h:1", is_master=True),
        replica("h:2", is_master=False, is_in_sync=False),
    ]
    late, master = broker_lines(found, statuses)
    assert (master.role, master.in_sync, master.replicas, master.waiting) == ("master", 1, 2, 3)
    assert (master.in_per_s, master.out_per_s, master.disk) == (5, None, 0.5)
    assert (late.role, late.in_sync, late.is_in_sync, late.waiting) == (
        "replica",
        None,
        False,
        None,
    )


def test_a_broker_without_a_known_role_is_shown_and_one_without_an_answer_first() -> None:
    silent = replace(broker("b", 0, "h:3"), fault="refused")
    lines = broker_lines([broker("a", 0, "h:1"), silent], [])
    assert [(line.broker, line.role) for line in lines] == [("b", ""), ("a", "")]


def test_groups_with_new_dead_letters_come_first() -> None:
    grown, histories = GroupHistory(), {}
    for letters in (2, 5):
        grown.add(group("new", letters), letters)
    histories["new"] = grown
    groups = [group("none", 0), group("unknown", None), group("old", 9, 9), group("new", 5, 5)]
    groups.append(group("resent", 7, 0))
    lines = letter_lines(groups, lambda name: histories.get(name) or GroupHistory())
    assert [(one.group, one.grown, one.count) for one in lines] == [("new", 3, 5), ("old", 0, 9)]


def entry(number: int, at_ms: int, **details: str) -> AuditEntry:
    return AuditEntry(
        number=number, at_ms=at_ms, user="bob", address="h", action="topic.create",
        details=details, outcome=AuditOutcome.DONE,
    )  # fmt: skip


def test_changes_of_people_and_of_roles_are_in_one_list() -> None:
    events = [ClusterEvent(at_ms=20, text="b: h:2 is master now", path="/brokers/b")]
    entries = [entry(2, 30, name="orders", queues="8"), entry(1, 10, group="billing")]
    entries.insert(0, replace(entry(3, 40), action="login"))
    found = recent_changes(entries, events, 5)
    assert [(one.text, one.user) for one in found] == [
        ("topic.create orders", "bob"),
        ("b: h:2 is master now", None),
        ("topic.create billing", "bob"),
    ]
    assert [one.at_ms for one in recent_changes(entries, events, 2)] == [30, 20]


def tables(*resources: tuple[ResourceType, str]) -> AccessTables:
    entries = tuple(
        PolicyEntry(
            resource=ResourcePattern(kind, Match.LITERAL, name),
            actions=(Action.GET,),
            decision=AccessDecision.ALLOW,
        )
        for kind, name in resources
    )
    acl = Acl().with_entries(PolicyType.CUSTOM, entries)
    return AccessTables(users={"bob": User(name="bob", password="x")}, acls={"bob": acl})


def topic(name: str) -> TopicSample:
    return TopicSample(
        name=name, brokers=[], read_queues=1, write_queues=1, message_type="NORMAL", messages=0,
        end=0, stored_ms=None, at_ms=0,
    )  # fmt: skip


def sample(access: AccessTables | None) -> ClusterSample:
    return ClusterSample(
        at_ms=0, took_ms=0, brokers=[broker("a", 0, "h:1")],
        topics={name: topic(name) for name in ("orders", "salaries")},
        groups={name: group(name, 0) for name in ("billing", "payroll")},
        replica_problems=["a: away"], problems=["b: away"], access=access,
    )  # fmt: skip


JOB: dict[str, Any] = {
    "table": "t", "job": "archive", "commits": 1, "committed_ms": 1, "looked_ms": 1, "lag": 1,
    "lag_s": 1.0, "state": "catching up",
}  # fmt: skip


def test_a_visitor_sees_the_topics_and_groups_that_he_may_read() -> None:
    some = sample(tables((ResourceType.TOPIC, "orders"), (ResourceType.GROUP, "billing")))
    shown = visible_sample(some, "bob")
    assert (set(shown.topics), set(shown.groups)) == ({"orders"}, {"billing"})
    assert (shown.brokers, shown.problems, shown.replica_problems) == ([], (), ())
    rows = [JobRow(topic="orders", **JOB), JobRow(topic="salaries", **JOB)]
    facts = JobFacts(tables=("t",), jobs=rows, problems=["u: gone"])
    jobs = visible_jobs(facts, some, "bob")
    assert ([row.topic for row in jobs.jobs], jobs.problems) == (["orders"], ())


def test_who_may_see_the_cluster_sees_all_and_so_does_everybody_where_rights_are_unknown() -> None:
    whole = sample(tables((ResourceType.CLUSTER, "c")))
    assert visible_sample(whole, "bob") is whole
    unknown = sample(None)
    assert visible_sample(unknown, "bob") is unknown
    facts = JobFacts(tables=("t",), jobs=[JobRow(topic="salaries", **JOB)])
    assert visible_jobs(facts, whole, "bob") is facts
    assert visible_jobs(None, whole, "bob").jobs == ()
