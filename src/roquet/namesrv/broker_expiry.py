"""Forgets brokers that have fallen silent: one step, done every few seconds."""

from roquet.namesrv.state import NameServerState


def step(state: NameServerState) -> None:
    """Forgets whoever has been silent for too long."""
    silent = state.brokers.silent(state.clock.monotonic_ms())
    state.brokers.forget(silent, "is gone: it fell silent")
