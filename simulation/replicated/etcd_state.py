"""EtcdState: keys, leases and transactions of etcd, as its JSON gateway is asked for them.

    call ──▶ leases that are over end, with their keys ──▶ one operation on all members at once

Nothing is lost between members and no two calls overlap: that etcd agrees with itself is taken for
granted. Source: etcd 3.4, api_grpc_gateway.md and rpc.proto.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final

import msgspec

TTL_SECONDS_MIN: Final = 2
"""Shortest lease that etcd grants with its default settings."""

_FIELDS: Final = {"CREATE": "create_revision", "MOD": "mod_revision", "LEASE": "lease"}


class EtcdKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key; `value` is base64, as it came."""

    value: str
    create_revision: int
    mod_revision: int
    lease: int


class EtcdLease(msgspec.Struct, frozen=True):
    """A lease of etcd."""

    ttl_s: int
    until_ms: int


class LeaseNotFound(Exception):
    """A key was to be bound to a lease that is over: the transaction changes nothing."""


class EtcdState:
    """State of one etcd cluster."""

    def __init__(
        self,
        rng: Random,
        revision: int = 1,
        keys: Mapping[str, EtcdKey] = MappingProxyType({}),
        leases: Mapping[int, EtcdLease] = MappingProxyType({}),
    ) -> None:
        self.revision = revision
        self._rng = rng
        self._keys = dict(keys)
        self._leases = dict(leases)

    def restarted(self, now_ms: int) -> "EtcdState":
        """A copy of the keys in an etcd that has just been started: its leases begin anew."""
        leases = {
            key: EtcdLease(lease.ttl_s, now_ms + lease.ttl_s * 1_000)
            for key, lease in self._leases.items()
        }
        return EtcdState(self._rng, self.revision, self._keys, leases)

    def call(self, path: str, request: dict[str, Any], now_ms: int) -> dict[str, Any]:
        """Carry out a call at a time; returns the response."""
        for lease in [key for key, one in self._leases.items() if one.until_ms <= now_ms]:
            self._end(lease)
        match path:
            case "/v3/lease/grant":
                return self._grant(max(int(request["TTL"]), TTL_SECONDS_MIN), now_ms)
            case "/v3/lease/keepalive":
                return self._keep_alive(int(request["ID"]), now_ms)
            case "/v3/lease/revoke":
                self._end(int(request["ID"]))
                return {}
            case "/v3/kv/range":
                return self._range(request)
            case "/v3/kv/txn":
                return self._transaction(request)
            case _:
                raise ValueError(f"etcd has no {path}")

    # -- leases -------------------------------------------------------------------------------

    def _grant(self, ttl_s: int, now_ms: int) -> dict[str, Any]:
        lease = self._rng.randrange(1, 1 << 62)
        self._leases[lease] = EtcdLease(ttl_s, now_ms + ttl_s * 1_000)
        return {"ID": str(lease), "TTL": str(ttl_s)}

    def _keep_alive(self, lease: int, now_ms: int) -> dict[str, Any]:
        known = self._leases.get(lease)
        if known is None:
            return {"result": {"ID": str(lease)}}
        self._leases[lease] = EtcdLease(known.ttl_s, now_ms + known.ttl_s * 1_000)
        return {"result": {"ID": str(lease), "TTL": str(known.ttl_s)}}

    def _end(self, lease: int) -> None:
        self._leases.pop(lease, None)
        self._keys = {name: key for name, key in self._keys.items() if key.lease != lease}

    # -- keys ---------------------------------------------------------------------------------

    def _range(self, request: dict[str, Any]) -> dict[str, Any]:
        first = _text(request["key"])
        end = _text(request["range_end"]) if "range_end" in request else first + "\0"
        return {
            "kvs": [
                {
                    "key": request["key"] if name == first else _encoded(name),
                    "value": key.value,
                    "create_revision": str(key.create_revision),
                    "mod_revision": str(key.mod_revision),
                    "lease": str(key.lease),
                }
                for name, key in sorted(self._keys.items())
                if first <= name < end
            ]
        }

    def _transaction(self, request: dict[str, Any]) -> dict[str, Any]:
        is_true = all(self._compare(one) for one in request["compare"])
        operations = request["success" if is_true else "failure"]
        for put in (one["request_put"] for one in operations if "request_put" in one):
            if (lease := int(put["lease"])) and lease not in self._leases:
                raise LeaseNotFound("etcdserver: requested lease not found")
        if any("request_range" not in one for one in operations):
            self.revision += 1
        responses = [self._operate(one) for one in operations]
        return {
            "header": {"revision": str(self.revision)},
            "responses": responses,
            "succeeded": is_true,
        }

    def _compare(self, one: dict[str, Any]) -> bool:
        field = _FIELDS[one["target"]]
        key = self._keys.get(_text(one["key"]))
        return int(one[field]) == (getattr(key, field) if key else 0)

    def _operate(self, one: dict[str, Any]) -> dict[str, Any]:
        if "request_range" in one:
            return {"response_range": self._range(one["request_range"])}
        if "request_delete_range" in one:
            self._keys.pop(_text(one["request_delete_range"]["key"]), None)
            return {}
        put = one["request_put"]
        name = _text(put["key"])
        known = self._keys.get(name)
        self._keys[name] = EtcdKey(
            value=put["value"],
            create_revision=known.create_revision if known else self.revision,
            mod_revision=self.revision,
            lease=int(put["lease"]),
        )
        return {}


def puts(request: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Names and values that a transaction writes if its comparisons are true."""
    written = [one["request_put"] for one in request["success"] if "request_put" in one]
    return [(_text(put["key"]), b64decode(put["value"])) for put in written]


def _text(key: str) -> str:
    return b64decode(key).decode()


def _encoded(name: str) -> str:
    return b64encode(name.encode()).decode()
