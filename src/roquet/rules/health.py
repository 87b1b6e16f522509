"""Health of a client: what it knows of itself without asking anybody, and whether it is ready."""

from typing import Final

import msgspec

SILENCE_S: Final = 60
"""Seconds without an answer after which a consumer is not ready: a pull is answered within 45 s."""


class StuckHandler(msgspec.Struct, frozen=True):
    """A handler that has been at work on one message for long."""

    message: str
    """The message as it is printed."""
    seconds: float
    """At least so long: health checks and time limits look, handlers are not timed."""


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a producer, at the moment of the call. True if it is ready."""

    is_open: bool
    """Whether the client was started, not closed, and not ended by an error."""
    brokers: tuple[str, ...] = ()
    """Names of the brokers that know this client."""
    lost_brokers: tuple[str, ...] = ()
    """Names of the other brokers of its topics."""
    last_error: str | None = None
    """The error of work that fails at present; None while nothing does."""

    @property
    def ok(self) -> bool:
        """Whether the client is ready."""
        return self.fault() is None

    @property
    def reason(self) -> str:
        """Why the client is not ready, in a sentence; `ready` if it is."""
        fault = self.fault() or "ready"
        return f"{fault}; {self.last_error}" if self.last_error else fault

    def __bool__(self) -> bool:
        return self.ok

    def fault(self) -> str | None:
        """Why the client is not ready; None if it is."""
        if not self.is_open:
            return "the client is not open"
        if self.lost_brokers and not self.brokers:
            return f"no broker is connected, lost: {', '.join(self.lost_brokers)}"
        return None


class ConsumerHealth(ClientHealth, frozen=True, kw_only=True):
    """Health of a consumer, at the moment of the call. True if it is ready."""

    has_queues: bool = False
    """Whether the group has shared its queues out since the start, be it none to this member."""
    queues: int = 0
    """Queues that are read; of a PopConsumer, pairs of a topic and a broker."""
    lag: int | None = None
    """Unhandled messages of these queues by the latest answers; None while one is missing, and for
    a PopConsumer."""
    waiting: int = 0
    """Messages that wait for a handler or a read."""
    answered_s: float | None = None
    """Seconds since a broker last answered a pull; None before the first answer."""
    silent_s: float = 0
    """Longest time that a queue, which is neither paused nor full, has got no answer."""
    handled_s: float | None = None
    """Seconds since handling last made progress, at first since a queue was assigned."""
    handlers: int = 0
    """Handlers that may run at the same time; 0 outside of `run` and `run_batch`."""
    stuck: tuple[StuckHandler, ...] = ()
    """Handlers that have been at work on one message for long, the longest first."""

    def fault(self) -> str | None:
        """Why the consumer is not ready; None if it is."""
        if (fault := super().fault()) is not None:
            return fault
        if not self.brokers:
            return "no broker of its topics is known yet"
        if not self.has_queues:
            return "its queues are not assigned yet"
        if self.silent_s >= SILENCE_S:
            return f"a queue has got no answer for {self.silent_s:.0f} s"
        if self.handlers and len(self.stuck) >= self.handlers:
            return f"all handlers are stuck, the longest for {self.stuck[0].seconds:.0f} s"
        return None
