"""Scenario: fault events can be read, and a seed is a number from 0 on."""

import pytest

from roquet.model.errors import UsageError
from simulation.scenario import Fault, FaultEvent, check_seed


def test_an_event_can_be_read() -> None:
    event = FaultEvent(at_ms=20_000, fault=Fault.PARTITION, consumer=3, broker=1)
    assert str(event) == "20000 ms: 3 is parted from 1"


def test_a_negative_seed_is_refused() -> None:
    check_seed(0)
    with pytest.raises(UsageError, match="from 0 on"):
        check_seed(-1)
