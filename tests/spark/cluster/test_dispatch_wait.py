"""Dispatch wait: a broker's queues show what its log holds."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.spark.conftest import CannedCluster

from roquet.model.errors import CallRefused, CallTimeout
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.dispatch_wait import wait_for_dispatch
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps


def cluster_of(
    canned: CannedCluster, looks: Sequence[dict[str, int]], timeout_ms: int = 60_000
) -> tuple[ClusterClient, list[int]]:
    """A client of a broker that reports these numbers, the last of them for ever; its pauses."""
    left = list(looks)

    def answer(_broker: str, call: Call[Any]) -> Reply:
        assert isinstance(call, GetRuntimeInfo)
        table = left.pop(0) if len(left) > 1 else left[0]
        return Reply(body=dumps(KVTable(table={name: str(at) for name, at in table.items()})))

    canned.answer = answer
    pauses: list[int] = []
    return canned.client(pauses.append, timeout_ms=timeout_ms), pauses


def report(end: int, behind: int, confirmed: int | None = None) -> dict[str, int]:
    table = {"commitLogMaxOffset": end, "dispatchBehindBytes": behind}
    return table if confirmed is None else {**table, "commitLogConfirmedOffset": confirmed}


def test_queues_that_are_behind_their_log_are_waited_for(canned: CannedCluster) -> None:
    looks = [report(900, 700), report(950, 300), report(980, 50)]
    cluster, pauses = cluster_of(canned, looks)
    assert not wait_for_dispatch(cluster, "broker-a"), "Apache's does not say what it hides"
    assert len(pauses) == 2, "the log held 900 bytes at first"


def test_what_a_master_hides_is_waited_for(canned: CannedCluster) -> None:
    looks = [report(900, 0, 500), report(950, 0, 899), report(950, 0, 900)]
    cluster, pauses = cluster_of(canned, looks)
    assert wait_for_dispatch(cluster, "broker-a")
    assert len(pauses) == 2


def test_the_shorter_log_of_a_new_master_counts(canned: CannedCluster) -> None:
    cluster, pauses = cluster_of(canned, [report(900, 0, 500), report(600, 0, 600)])
    assert wait_for_dispatch(cluster, "broker-a")
    assert len(pauses) == 1


def test_a_master_that_was_replaced_meanwhile_is_not_believed(canned: CannedCluster) -> None:
    cluster, pauses = cluster_of(canned, [report(900, 0, 500), report(900, 0, 900)])
    moved: list[int] = []

    def move(pause_ms: int) -> None:
        pauses.append(pause_ms)
        if not moved:
            canned.addresses["broker-a"] = "elsewhere:1"
            moved.append(1)

    cluster.pause = move
    assert wait_for_dispatch(cluster, "broker-a")
    asked = sum(isinstance(call, GetRuntimeInfo) for call in canned.calls)
    assert asked == 4, "the former one and where it was, and the new one from the beginning"
    assert cluster.addresses["broker-a"] == "elsewhere:1"


def test_what_stays_hidden_is_an_error(canned: CannedCluster) -> None:
    cluster, _ = cluster_of(canned, [report(900, 0, 500)], timeout_ms=0)
    with pytest.raises(CallTimeout, match="'broker-a' hides the last 400 bytes of its log"):
        wait_for_dispatch(cluster, "broker-a")


def test_a_key_index_that_is_behind_is_not_waited_for(canned: CannedCluster) -> None:
    cluster, pauses = cluster_of(canned, [report(900, 700, 900)])
    assert wait_for_dispatch(cluster, "broker-a")
    assert pauses == []


def refusing(
    canned: CannedCluster, code: ResponseCode, timeout_ms: int = 60_000
) -> tuple[ClusterClient, list[int]]:
    client = cluster_of(canned, [report(0, 0)], timeout_ms)
    canned.reply_with(Call, CallRefused(code, "not you"))
    return client


def test_a_broker_that_knows_no_runtime_info_is_not_waited_for(canned: CannedCluster) -> None:
    cluster, pauses = refusing(canned, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert not wait_for_dispatch(cluster, "broker-a")
    assert pauses == []


def test_a_user_who_may_not_see_the_cluster_is_told_what_to_grant(canned: CannedCluster) -> None:
    """Rows that a master hides would be missed, and stored again."""
    cluster, _ = refusing(canned, ResponseCode.NO_PERMISSION)
    with pytest.raises(CallRefused, match=r"allow the user to Get the broker's cluster.*not you"):
        wait_for_dispatch(cluster, "broker-a")


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR])
def test_a_broker_that_does_not_say_what_it_hides_is_not_taken_for_one_that_hides_nothing(
    canned: CannedCluster, code: ResponseCode
) -> None:
    cluster, _ = refusing(canned, code, timeout_ms=0)
    with pytest.raises(CallRefused, match="not you"):
        wait_for_dispatch(cluster, "broker-a")
