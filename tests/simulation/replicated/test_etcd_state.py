"""EtcdState: revisions, comparisons and leases as etcd has them."""

from base64 import b64encode
from random import Random
from typing import Any

import pytest

from simulation.replicated.etcd_state import EtcdState, LeaseNotFound, puts


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def put(key: str, value: str, lease: int = 0) -> dict[str, Any]:
    pair = {"key": encoded(key), "value": encoded(value), "lease": str(lease)}
    return {"request_put": pair}


def compare(key: str, target: str, **number: int) -> dict[str, Any]:
    return {"key": encoded(key), "target": target} | {k: str(v) for k, v in number.items()}


def transaction(state: EtcdState, *success: Any, when: Any = (), now_ms: int = 0) -> dict[str, Any]:
    request = {"compare": [*when], "success": [*success], "failure": []}
    return state.call("/v3/kv/txn", request, now_ms)


def values(state: EtcdState, now_ms: int = 0) -> list[str]:
    request = {"key": encoded("a"), "range_end": encoded("z")}
    return [pair["value"] for pair in state.call("/v3/kv/range", request, now_ms)["kvs"]]


def test_a_key_keeps_the_revision_in_which_it_was_made() -> None:
    state = EtcdState(Random(1))
    assert transaction(state, put("k", "one"))["header"] == {"revision": "2"}
    transaction(state, put("k", "two"))
    (pair,) = state.call("/v3/kv/range", {"key": encoded("k")}, 0)["kvs"]
    assert (pair["value"], pair["create_revision"], pair["mod_revision"]) == (
        encoded("two"), "2", "3",
    )  # fmt: skip


def test_a_transaction_writes_only_if_all_comparisons_are_true() -> None:
    state = EtcdState(Random(1))
    is_new = compare("k", "CREATE", create_revision=0)
    assert transaction(state, put("k", "one"), when=[is_new])["succeeded"]
    assert not transaction(state, put("k", "two"), when=[is_new])["succeeded"]
    is_known = compare("k", "MOD", mod_revision=2)
    is_bound = compare("k", "LEASE", lease=7)
    assert not transaction(state, put("k", "two"), when=[is_known, is_bound])["succeeded"]
    assert values(state) == [encoded("one")]
    remove = {"request_delete_range": {"key": encoded("k")}}
    assert transaction(state, remove, when=[is_known])["succeeded"]
    assert values(state) == []


def test_a_key_goes_with_its_lease() -> None:
    state = EtcdState(Random(1))
    lease = int(state.call("/v3/lease/grant", {"TTL": "1"}, 0)["ID"])
    transaction(state, put("k", "one", lease), put("l", "two"))
    renewed = state.call("/v3/lease/keepalive", {"ID": str(lease)}, 1_999)
    assert renewed["result"]["TTL"] == "2", "shorter leases are not granted"
    assert len(values(state, 3_998)) == 2
    assert values(state, 3_999) == [encoded("two")]
    assert "TTL" not in state.call("/v3/lease/keepalive", {"ID": str(lease)}, 4_000)["result"]
    with pytest.raises(LeaseNotFound):
        transaction(state, put("m", "x"), put("k", "one", lease))
    assert values(state) == [encoded("two")]


def test_a_revoked_lease_is_over_at_once() -> None:
    state = EtcdState(Random(1))
    lease = int(state.call("/v3/lease/grant", {"TTL": "60"}, 0)["ID"])
    transaction(state, put("k", "one", lease))
    state.call("/v3/lease/revoke", {"ID": str(lease)}, 0)
    assert values(state) == []


def test_a_restored_etcd_has_the_same_keys_and_new_leases() -> None:
    state = EtcdState(Random(1))
    lease = int(state.call("/v3/lease/grant", {"TTL": "4"}, 0)["ID"])
    transaction(state, put("k", "one", lease))
    twin = state.restarted(3_000)
    transaction(state, put("k", "two"))
    assert values(twin, 6_999) == [encoded("one")]
    assert twin.revision == 2
    assert values(twin, 7_000) == []


def test_what_a_transaction_writes_can_be_told() -> None:
    read = {"request_range": {"key": encoded("k")}}
    assert puts({"success": [put("k", "one"), read]}) == [("k", b"one")]


def test_what_etcd_does_not_have_is_a_fault_of_the_test() -> None:
    with pytest.raises(ValueError, match="etcd has no /v3/none"):
        EtcdState(Random(1)).call("/v3/none", {}, 0)
