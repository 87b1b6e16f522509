"""Health: which facts make a client not ready, and how it says so."""

from typing import Any

import msgspec
import pytest

from roquet.rules.health import SILENCE_S, ClientHealth, ConsumerHealth, StuckHandler

READY = ConsumerHealth(is_open=True, brokers=("a",), has_queues=True, handlers=2)
STUCK = StuckHandler("<m>", 90)


def test_a_ready_client_is_true_and_says_so() -> None:
    for health in (ClientHealth(is_open=True), READY):
        assert health
        assert health.ok
        assert health.reason == "ready"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_open": False}, "the client is not open"),
        ({"brokers": (), "lost_brokers": ("a", "b")}, "no broker is connected, lost: a, b"),
        ({"brokers": ()}, "no broker of its topics is known yet"),
        ({"has_queues": False}, "its queues are not assigned yet"),
        ({"silent_s": SILENCE_S}, "a queue has got no answer for 60 s"),
        ({"stuck": (STUCK, STUCK)}, "all handlers are stuck, the longest for 90 s"),
    ],
)
def test_the_reason_is_a_sentence(change: dict[str, Any], reason: str) -> None:
    health = msgspec.structs.replace(READY, **change)
    assert (health.ok, bool(health), health.reason) == (False, False, reason)


@pytest.mark.parametrize(
    "change",
    [
        {"lost_brokers": ("b",)},
        {"stuck": (STUCK,)},
        {"handlers": 0, "stuck": ()},
        {"queues": 0, "lag": None},
    ],
)
def test_a_consumer_that_can_still_work_is_ready(change: dict[str, Any]) -> None:
    assert msgspec.structs.replace(READY, **change).ok


def test_the_reason_ends_with_what_fails() -> None:
    health = msgspec.structs.replace(READY, last_error="routes: no name server")
    assert health.reason == "ready; routes: no name server"
    assert not ClientHealth(is_open=True, lost_brokers=("a",)).ok
