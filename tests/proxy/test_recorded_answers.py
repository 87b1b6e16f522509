"""Requests to the genuine proxy 5.5.0 and its answers: ours answers with the same codes, or better.

`tests/vectors/grpc/statuses.jsonl` has them in the order in which they were made. Those that settle
messages need handles of messages received here; test_settling.py has them.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from tests.proxy.conftest import Aborted, User

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop

RECORDED = Path(__file__).parents[1] / "vectors" / "grpc" / "statuses.jsonl"

BETTER: Mapping[str, str] = {
    # The client's fault, not the proxy's: and the sentence says what is not served.
    "settings pull": "INVALID_ARGUMENT",
    # It fails with a NullPointerException; ours waits for the settings and says what is missing.
    "receive no settings": "UNRECOGNIZED_CLIENT_TYPE",
    # Its answer says no more than that something failed.
    "receive bad sql": "ILLEGAL_FILTER_EXPRESSION",
    "end tx unknown": "INVALID_TRANSACTION_ID",
    "recall garbage": "BAD_REQUEST",
    # It checks the type of a topic that does not exist.
    "send unknown topic": "TOPIC_NOT_FOUND",
    "send normal to mixed": "TOPIC_NOT_FOUND",
    "send fifo to mixed": "TOPIC_NOT_FOUND",
    # It waits for nothing until the polling time is over.
    "receive batch 0": "BAD_REQUEST",
    "ack empty": "BAD_REQUEST",
    "ack garbage only": "INVALID_RECEIPT_HANDLE",
}
"""Cases in which ours answers with another code, and why."""

LEFT_OUT = (
    # Lite topics are not served yet.
    "lite", "LITET", "unimplemented",
    # These settle messages of the recorded broker.
    "ack one", "ack again", "ack two", "change ", "ack with", "ack wrong", "forward", "ack expired",
    "receive 0",
)  # fmt: skip

CLIENTS = {
    "settings producer": "probe-1",
    "settings producer no topics": "probe-0",
    "settings simple": "cons-1",
    "settings push": "cons-2",
    "settings push fifo group": "cons-3",
    "settings unknown group": "cons-4",
    "heartbeat simple": "cons-1",
    "heartbeat simple no group": "cons-1",
    "receive fifo": "cons-3",
    "receive no settings": "nobody",
    "terminate simple": "cons-1",
    "terminate twice": "cons-1",
    "receive poll 1s clamps to 5s": "cons-2",
}
"""Client ids, where they are not by the kind of request."""


def cases() -> list[dict[str, Any]]:
    with RECORDED.open() as lines:
        recorded = [json.loads(line) for line in lines]
    return [case for case in recorded if not any(part in case["case"] for part in LEFT_OUT)]


def client_of(case: Mapping[str, Any]) -> str | None:
    default = "cons-1" if case["rpc"] == "ReceiveMessage" else "probe-1"
    return None if case["case"] == "no client id" else CLIENTS.get(case["case"], default)


LONG: Mapping[str, Mapping[str, Any]] = {
    "send body 4MiB+1": {"body": b"x" * (4 * 1024 * 1024 + 1)},
    "send body 4MiB": {"body": b"x" * (4 * 1024 * 1024)},
    "send props 17k": {"user_properties": {"k": "v" * 17_000}},
}
"""Fields of messages that were too long to be recorded."""


def request_of(case: Mapping[str, Any]) -> Any:
    kind = "TelemetryCommand" if case["rpc"] == "Telemetry" else f"{case['rpc']}Request"
    request = ParseDict(case["request"], getattr(service, kind)())
    for message in getattr(request, "messages", ()):  # times are as far from now as they were then
        message.MergeFrom(pb.Message(**LONG.get(case["case"], {})))
        system = message.system_properties
        if system.HasField("delivery_timestamp"):
            ahead = system.delivery_timestamp.ToMilliseconds()
            ahead -= system.born_timestamp.ToMilliseconds()
            system.delivery_timestamp.FromMilliseconds(this_loop().clock.now_ms() + ahead)
    return request


def timeout_of(case: Mapping[str, Any]) -> float:
    return 2 if case["case"] == "receive deadline 2s" else 30


def status_of(answer: Any) -> str:
    """The code of a recorded answer, or of ours as a dict."""
    first = answer[0] if isinstance(answer, list) else answer
    return str(first["status"]["code"])


def as_dict(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found


async def test_requests_get_the_codes_of_the_genuine_proxy_or_better_ones(proxy: Proxy) -> None:
    differing = []
    async with AsyncExitStack() as streams:
        for case in cases():
            name, user = case["case"], User(proxy, client_of(case))
            wanted = BETTER.get(name) or (
                case["grpc_error"]["code"] if "grpc_error" in case else status_of(case["response"])
            )
            try:
                if case["rpc"] == "Telemetry":
                    stream = user.telemetry(request_of(case).settings)
                    got = status_of(as_dict(await streams.enter_async_context(stream)))
                else:
                    answer = await user.call(case["rpc"], request_of(case), timeout_of(case))
                    parts = answer if isinstance(answer, list) else [answer]
                    got = status_of([as_dict(part) for part in parts])
            except Aborted as aborted:
                got = aborted.code.name
            if got != wanted:
                differing.append(f"{name}: {got}, not {wanted}")
    assert not differing, "\n".join(differing)


async def test_settings_come_back_as_from_the_genuine_proxy(proxy: Proxy) -> None:
    for case in cases():
        if case["rpc"] != "Telemetry" or "grpc_error" in case:
            continue
        async with User(proxy, client_of(case)).telemetry(request_of(case).settings) as answer:
            ours, (theirs,) = as_dict(answer), case["response"]
        for quota in ("lite_subscription_quota", "max_lite_topic_size"):  # of lite topics
            theirs["settings"].get("subscription", {}).pop(quota, None)
        pauses = ours["settings"]["backoff_policy"].get("customized_backoff", {}).get("next", [])
        assert all(pause.endswith("s") for pause in pauses)
        assert ours == theirs, case["case"]
