"""Logs that have to hold a message before its sender is answered."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.replication.acknowledgement import (
    ALL_OF_THE_SET,
    AcknowledgementPolicy,
    BrokerRole,
    ConnectionReport,
    DeploymentMode,
    PutStatus,
    confirmed_position,
    logs_needed,
    put_status,
    replicated_position,
    reports_of_replicas,
)
from roquet.wire.codes import ResponseCode


def policy(mode: DeploymentMode, **settings: Any) -> AcknowledgementPolicy:
    return AcknowledgementPolicy(role=BrokerRole.SYNC_MASTER, mode=mode, **settings)


def test_only_a_synchronous_master_waits_and_only_for_messages_that_want_it() -> None:
    for mode in DeploymentMode:
        strict = policy(mode, in_sync_replicas=2, min_in_sync_replicas=2)
        assert logs_needed(strict, in_sync=1, waits=False) == 1
        for role in (BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE):
            other = AcknowledgementPolicy(role=role, mode=mode, in_sync_replicas=2)
            assert logs_needed(other, in_sync=1) == 1


@pytest.mark.parametrize("asked", [0, 1])
def test_a_synchronous_master_with_the_default_number_waits_for_nobody(asked: int) -> None:
    for mode in DeploymentMode:
        assert logs_needed(policy(mode, in_sync_replicas=asked), in_sync=1) == 1


def test_fixed_roles_never_refuse() -> None:
    assert logs_needed(policy(DeploymentMode.FIXED_ROLES, in_sync_replicas=3), in_sync=1) == 3


def test_an_acting_group_refuses_what_too_few_would_hold() -> None:
    strict = policy(DeploymentMode.ACTING_MASTER, in_sync_replicas=3)
    assert logs_needed(strict, in_sync=3) == 3
    assert logs_needed(strict, in_sync=2) is None


def test_an_acting_group_may_adapt_down_to_the_minimum() -> None:
    settings = {"in_sync_replicas": 3, "min_in_sync_replicas": 2, "adapts": True}
    adapting = policy(DeploymentMode.ACTING_MASTER, **settings)
    assert [logs_needed(adapting, in_sync=n) for n in (4, 3, 2, 1)] == [3, 3, 2, None]


def test_a_group_with_a_controller_refuses_below_the_minimum() -> None:
    some = policy(DeploymentMode.CONTROLLER, in_sync_replicas=2, min_in_sync_replicas=2)
    assert [logs_needed(some, in_sync=n) for n in (3, 2, 1)] == [2, 2, None]
    every = policy(DeploymentMode.CONTROLLER, min_in_sync_replicas=2, all_of_the_set=True)
    assert [logs_needed(every, in_sync=n) for n in (2, 1)] == [ALL_OF_THE_SET, None]


def test_enough_logs_hold_what_enough_replicas_report() -> None:
    reports = {2: 70, 3: 90, 4: 10}
    assert [replicated_position(n, 100, reports) for n in (0, 1, 2, 3, 4, 5)] == [
        100, 100, 90, 70, 10, 0,
    ]  # fmt: skip
    assert replicated_position(2, 80, reports) == 80, "a report beyond the end confirms nothing"


def test_only_members_of_the_set_count() -> None:
    reports = {2: 70, 3: 90, 4: 95}
    assert replicated_position(2, 100, reports, members=[2, 3]) == 90
    assert replicated_position(3, 100, reports, members=[2, 3]) == 70
    assert replicated_position(ALL_OF_THE_SET, 100, reports, members=[2, 3]) == 70


def test_a_member_without_a_connection_holds_nothing() -> None:
    assert replicated_position(ALL_OF_THE_SET, 100, {2: 70}, members=[2, 3]) == 0
    assert replicated_position(3, 100, {2: 70}, members=[2, 3]) == 0
    assert replicated_position(2, 100, {2: 70}, members=[2, 3]) == 70


def test_a_master_alone_in_its_set_holds_all_of_it() -> None:
    assert replicated_position(ALL_OF_THE_SET, 100, {}, members=[]) == 100


def test_the_confirmed_position_only_grows() -> None:
    assert confirmed_position(40, 100, {2: 70, 3: 90}, [2, 3]) == 70
    assert confirmed_position(80, 100, {2: 70, 3: 90}, [2, 3]) == 80
    assert confirmed_position(40, 100, {2: 70}, [2, 3]) == 40, "3 has no connection"
    assert confirmed_position(40, 100, {2: 70, 3: 0}, [2, 3]) == 40, "3 has not reported yet"
    assert confirmed_position(40, 100, {}, []) == 100


@given(
    st.integers(0, 50),
    st.dictionaries(st.integers(2, 6), st.integers(0, 60)),
    st.sets(st.integers(2, 6)),
    st.integers(-1, 6),
)
def test_enough_members_hold_all_that_is_replicated(
    end: int, reports: dict[int, int], members: set[int], needed: int
) -> None:
    position = replicated_position(needed, end, reports, members)
    assert 0 <= position <= end
    if position:
        holders = 1 + sum(reports.get(member, 0) >= position for member in members)
        assert holders >= (len(members) + 1 if needed == ALL_OF_THE_SET else needed)


@pytest.mark.parametrize(
    ("on_disk", "replicated", "status"),
    [
        (True, True, PutStatus.PUT_OK),
        (False, True, PutStatus.FLUSH_DISK_TIMEOUT),
        (True, False, PutStatus.FLUSH_SLAVE_TIMEOUT),
        (False, False, PutStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_replicas_that_are_late_weigh_more_than_a_late_disk(
    status: PutStatus, *, on_disk: bool, replicated: bool
) -> None:
    assert put_status(on_disk=on_disk, replicated=replicated) == status


def test_each_status_is_answered_with_apaches_code() -> None:
    codes = {status.name: ResponseCode(status) for status in PutStatus}
    assert codes.pop("PUT_OK") == ResponseCode.SUCCESS
    assert codes.pop("IN_SYNC_REPLICAS_NOT_ENOUGH") == ResponseCode.SYSTEM_ERROR
    assert all(code.name == name for name, code in codes.items())


def connection(host: str, first: int, previous: int, log_end: int = 100) -> ConnectionReport:
    latest = previous + 1
    return ConnectionReport(
        host=host, log_end=log_end, first=first, previous=previous, latest=latest
    )


@pytest.mark.parametrize(
    ("connections", "counted"),
    [
        ({}, {}),
        ({1: connection("a", 1, 1)}, {1: 100}),
        ({1: connection("a", 1, 1), 2: connection("b", 2, 2)}, {1: 100, 2: 100}),
        # The first one may be the same replica's, until it has reported twice again: one log.
        ({1: connection("a", 1, 1), 2: connection("a", 2, 2, 50)}, {2: 100}),
        ({1: connection("a", 1, 1, 50), 3: connection("a", 3, 3)}, {3: 100}),
        (
            {1: connection("a", 1, 1, 50), 2: connection("a", 2, 2), 3: connection("a", 3, 3, 0)},
            {3: 100},
        ),
        ({1: connection("a", 1, 3), 2: connection("a", 2, 2, 50)}, {1: 100, 2: 50}),
        ({1: connection("a", 1, 3), 2: connection("a", 2, 2), 4: connection("a", 4, 5)}, {4: 100}),
    ],
)
def test_connections_of_a_host_are_replicas_once_they_report_beside_the_newest(
    connections: dict[int, ConnectionReport], counted: dict[int, int]
) -> None:
    assert reports_of_replicas(connections) == counted


def test_a_stranger_who_reports_nothing_takes_nothing_from_a_replica_of_its_host() -> None:
    replica, stranger = connection("a", 1, 7, 900), connection("a", 9, 9, 0)
    assert reports_of_replicas({1: replica, 2: stranger}) == {2: 900}
    assert reports_of_replicas({1: connection("a", 1, 9, 950), 2: stranger}) == {1: 950, 2: 0}
