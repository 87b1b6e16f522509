"""FakeEtcd: keys, transactions and leases of etcd in memory, with the gateway's JSON."""

from base64 import b64decode
from typing import Any

import msgspec

from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.etcd_gateway import EtcdGateway
from roquet.controller.state_store.interface import StateStoreError

Json = dict[str, Any]


class FakeEtcd:
    """One etcd for any number of stores."""

    def __init__(self) -> None:
        self.revision = 1
        self.keys: dict[str, Json] = {}
        self.leases: set[int] = set()
        self.fails: list[StateStoreError] = []
        """Errors of the next calls."""
        self.forgets_answer = False
        """Whether the next transaction is carried out and its answer lost."""
        self.is_away = False
        self.is_full = False
        """Whether transactions are refused, since there is no space."""

    def answer(self, path: str, request: Json) -> Json:
        if self.is_away:
            raise StateStoreError("etcd does not answer: cannot connect", definite=True)
        if self.fails:
            raise self.fails.pop(0)
        match path:
            case "/v3/lease/grant":
                self.leases.add(lease := 7000 + self.revision + len(self.leases))
                return {"ID": str(lease), "TTL": request["TTL"]}
            case "/v3/lease/keepalive":
                lease = int(request["ID"])
                is_known = lease in self.leases
                return {"result": {"ID": str(lease), **({"TTL": "4"} if is_known else {})}}
            case "/v3/lease/revoke":
                self.expire(int(request["ID"]))
                return {}
            case "/v3/kv/range":
                return self.range(request)
            case _ if self.is_full:
                raise StateStoreError("etcdserver: mvcc: database space exceeded", definite=True)
            case _:
                return self.transaction(request)

    def expire(self, lease: int) -> None:
        self.leases.discard(lease)
        self.keys = {k: pair for k, pair in self.keys.items() if int(pair["lease"]) != lease}

    def expire_all(self) -> None:
        for lease in tuple(self.leases):
            self.expire(lease)

    def range(self, request: Json) -> Json:
        first = _text(request["key"])
        end = _text(request["range_end"]) if "range_end" in request else first + "\0"
        kvs = [pair for key, pair in sorted(self.keys.items()) if first <= key < end]
        return {"kvs": kvs, "count": str(len(kvs))}

    def transaction(self, request: Json) -> Json:
        is_true = all(self.compare(one) for one in request["compare"])
        operations = request["success" if is_true else "failure"]
        if any(one.keys() & {"request_put", "request_delete_range"} for one in operations):
            self.revision += 1
        responses = [self.operate(one) for one in operations]
        header = {"revision": str(self.revision)}
        if self.forgets_answer:
            self.forgets_answer = False
            raise StateStoreError("etcd: no response", definite=False)
        return {
            "header": header,
            "responses": responses,
            **({"succeeded": True} if is_true else {}),
        }

    def compare(self, one: Json) -> bool:
        pair = self.keys.get(_text(one["key"]), {})
        fields = {"CREATE": "create_revision", "MOD": "mod_revision", "LEASE": "lease"}
        field = fields[one["target"]]
        return int(pair.get(field, 0)) == int(one[field])

    def operate(self, one: Json) -> Json:
        if "request_range" in one:
            return {"response_range": self.range(one["request_range"])}
        if "request_delete_range" in one:
            self.keys.pop(_text(one["request_delete_range"]["key"]), None)
            return {"response_delete_range": {}}
        put = one["request_put"]
        name = _text(put["key"])
        created = self.keys.get(name, {}).get("create_revision", str(self.revision))
        self.keys[name] = {**put, "create_revision": created, "mod_revision": str(self.revision)}
        return {"response_put": {}}


def _text(key: str) -> str:
    return b64decode(key).decode()


class FakeGateway(EtcdGateway):
    def __init__(self, etcd: FakeEtcd) -> None:
        super().__init__([])
        self._etcd = etcd

    async def call(self, path: str, request: Json, wanted: type[Any]) -> Any:
        answer = msgspec.json.encode(self._etcd.answer(path, request))
        return msgspec.json.decode(answer, type=wanted, strict=False)


def etcd_store(etcd: FakeEtcd) -> EtcdStore:
    return EtcdStore(FakeGateway(etcd), "g1")
