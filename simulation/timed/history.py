"""TimedHistory: a history that also knows what is due, and what the producer's database says."""

from collections.abc import Callable
from enum import Enum

import msgspec

from roquet.rules.delay.delay_levels import DEFAULT_LEVELS, retry_level
from simulation.history import HandlingAttempt, History
from simulation.timed.scenario import RETRIES, SendOperation, TransactionCourse


class DatabaseState(Enum):
    """The state of a local transaction; the value is its text in lines and findings."""

    OPEN = "its work goes on"
    COMMITTED = "its work is done"
    ROLLED_BACK = "its work was taken back"


class DatabaseEntry(msgspec.Struct, frozen=True):
    """The state of a local transaction, and the producer's host that wrote it."""

    state: DatabaseState
    host: str


class TimedHistory(History):
    """The events of a timed workload."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.failures: dict[str, int] = {}
        """Failed attempts at each message, by all consumers."""
        self.dues: list[int] = []
        """When something happens by itself: a message falls due, a broker comes back."""
        self.database: dict[str, DatabaseEntry] = {}
        """The producer's database, which survives its process: local transactions by name."""
        self.checks: dict[str, int] = {}
        """How often a broker asked for the state of each transaction."""

    def acknowledge_operation(self, operation: SendOperation, began_ms: int) -> None:
        """Note that a broker has taken a message."""
        self.acknowledge(operation.name, began_ms, operation.kind.value)
        if operation.wait_ms:
            self.dues.append(began_ms + operation.wait_ms)

    def end(self, attempt: HandlingAttempt, *, failed: bool) -> None:
        """Note that a handler ended; after a failure, when the next attempt is due."""
        super().end(attempt, failed=failed)
        if failed and attempt.tries < RETRIES:
            wait_ms = DEFAULT_LEVELS[retry_level(attempt.tries) - 1]
            self.dues.append(self.now_ms() + wait_ms)

    def broker_crashed(self, host: str, back_ms: int) -> None:
        """Note that a broker's process is gone, and when it will be back."""
        super().broker_crashed(host, back_ms)
        self.dues.append(back_ms)

    def broker_returned(self, host: str) -> None:
        """Note that a broker serves again, which delivers what fell due meanwhile."""
        super().broker_returned(host)
        self.dues.append(self.now_ms())

    def write_database(self, name: str, state: DatabaseState, host: str) -> None:
        """Write the state of a local transaction into the producer's database."""
        self.database[name] = DatabaseEntry(state, host)
        self.say(f"{host} notes that of {name} {state.value}")

    def must_be_delivered(self, operation: SendOperation) -> bool:
        """Whether consumers have to get a message: acknowledged, and not rolled back or open."""
        if operation.name not in self.acknowledged:
            return False
        entry = self.database.get(operation.name)
        if entry is None:
            return True
        is_decided = operation.course is not TransactionCourse.NEVER_DECIDE
        return is_decided and entry.state is DatabaseState.COMMITTED
