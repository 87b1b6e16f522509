"""Broker expiry: removes brokers that have fallen silent, one step every few seconds."""

from roquet.namesrv.state import NameServerState


def step(state: NameServerState) -> None:
    """Remove brokers that have been silent for longer than their limits."""
    silent = state.brokers.silent(state.clock.monotonic_ms())
    state.brokers.forget(silent, "is gone: it fell silent")
