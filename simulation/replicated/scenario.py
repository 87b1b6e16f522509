"""Scenario of the replicated workload: a group's settings, and the faults that happen to it.

Four kinds of settings, each with the faults under which its promise holds:

    whole set        everybody in the set has each message; any fault, power losses one at a time
    whole set alone  the same, and a master may be the only member; no losses of power
    on disks         as the whole set, and on every disk: any loss of power
    two of the set   two logs are enough; all faults happen to one broker, which loses no power, and
                     an operator has others lead
"""

from enum import Enum
from random import Random
from typing import Final

import msgspec

from simulation.scenario import check_seed

BROKERS: Final = 3

CONTROLLERS_MAX: Final = 3

MASTER: Final = 0
"""In place of a broker's number: the master at that moment."""

FIRST_FAULT_MS: Final = 500
"""Messages are sent for so long before the first fault."""

BURST: Final = (6, 20)
"""Least and most faults in a row; a life has one burst of them, unless it is to have more."""

GAPS_MS: Final = (40, 200, 400, 1_000, 3_000)
"""Longest times between two faults of a burst, of which one is drawn for each."""

LENGTHS_MS: Final = (60, 150, 400, 1_000, 2_500, 4_500)
"""Longest lengths of faults, of which one is drawn for each: most are over before the group has
reacted, and some outlive leases and elections."""

HEALING_MS: Final = 2_500
"""Longest time between the last fault of a burst and the next one."""

PACES: Final = (1.0, 0.5, 0.25)
"""Times between the faults of a burst, against the first one of a life: a long life has bursts of
each pace, since an idle group costs as much as one with faults."""


class Promise(Enum):
    """Settings by which messages are acknowledged."""

    WHOLE_SET = "whole set"
    WHOLE_SET_ALONE = "whole set, perhaps the master alone"
    ON_DISKS = "whole set, on disks"
    TWO_OF_THE_SET = "two of the set"


class ControllerStore(Enum):
    """Where controllers keep their state."""

    MEMORY = "memory that survives the controller"
    FILE = "a file"
    ETCD = "etcd, which several controllers share"


class ReplicaFault(Enum):
    """Faults of a replicated group; the value is its text in lines."""

    KILL = "is killed"
    POWER_LOSS = "loses its power"
    STOP = "is stopped in good order"
    ROLLING_RESTART = "all brokers are started again, one after the other"
    FREEZE = "stands still"
    ISOLATE = "is parted from all servers"
    PART_BROKER = "is parted from another broker"
    PART_ONE_WAY = "is not heard by another broker"
    PART_CONTROLLER = "is parted from the controller"
    BLACKOUT = "goes down, and all others with it"
    CUT = "loses its connections to another broker"
    CUT_CONTROLLER = "loses its connection to the controller"
    SLOW_NETWORK = "has a slow network"
    SLOW_DISK = "has a slow disk"
    DISK_FULL = "has no space on its disk"
    WALL_CLOCK = "has a wall clock that jumps"
    STRANGER = "has a stranger at its port for replicas, who names the id of another broker"
    HAND_OVER = "is asked by an operator to leave the lead to another broker"
    CONTROLLER_KILL = "the controller is killed"
    CONTROLLER_POWER_LOSS = "the controller's machine loses its power"
    CONTROLLER_FREEZE = "the controller stands still"
    CONTROLLER_PARTED = "the controller is parted from its store"
    ETCD_KILL = "a member of etcd is killed"
    ETCD_FREEZE = "a member of etcd stands still"
    ETCD_PARTED = "a member of etcd is parted from the others"
    ETCD_STOP = "all of etcd is killed"
    ETCD_SLOW = "etcd is slow"
    ETCD_LOSES_ANSWERS = "etcd loses requests and answers"
    ETCD_LOSES_DATA = "etcd loses its data, which are restored"


OF_ETCD: Final = (
    ReplicaFault.CONTROLLER_PARTED,
    ReplicaFault.ETCD_KILL,
    ReplicaFault.ETCD_FREEZE,
    ReplicaFault.ETCD_PARTED,
    ReplicaFault.ETCD_STOP,
    ReplicaFault.ETCD_SLOW,
    ReplicaFault.ETCD_LOSES_ANSWERS,
    ReplicaFault.ETCD_LOSES_DATA,
)
"""Faults of groups whose controllers share an etcd."""

FAULTS: Final = (
    *(ReplicaFault.KILL,) * 4,
    *(ReplicaFault.POWER_LOSS,) * 3,
    *(ReplicaFault.FREEZE,) * 4,
    *(ReplicaFault.ISOLATE,) * 2,
    *(ReplicaFault.PART_CONTROLLER,) * 2,
    *(ReplicaFault.CONTROLLER_KILL,) * 2,
    ReplicaFault.BLACKOUT,
    *(
        fault
        for fault in ReplicaFault
        if fault not in {ReplicaFault.ROLLING_RESTART, ReplicaFault.HAND_OVER, *OF_ETCD}
        and fault is not ReplicaFault.STRANGER
    ),
)
"""Faults to draw from, those that change the master more often; a restart of all and strangers are
drawn apart."""

STRANGERS: Final = 0.15
"""Share of the faults that are strangers, in half of the lives."""

ON_DISKS: Final = (
    *FAULTS,
    *(ReplicaFault.SLOW_DISK,) * 4,
    *(ReplicaFault.BLACKOUT,) * 4,
    *(ReplicaFault.POWER_LOSS,) * 4,
)
"""Faults where everything is on disks: more of those that tell what is there."""

WITHOUT_POWER_LOSS: Final = tuple(fault for fault in FAULTS if fault is not ReplicaFault.POWER_LOSS)

AT_ONE_BROKER: Final = (
    *(fault for fault in WITHOUT_POWER_LOSS if fault is not ReplicaFault.BLACKOUT),
    *(ReplicaFault.HAND_OVER,) * 4,
)
"""Faults of one broker, and handovers: there the members differ by what was acknowledged."""


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault at a time."""

    at_ms: int
    """Since the group served for the first time."""
    fault: ReplicaFault
    broker: int
    """Number of the broker that it happens to; `MASTER`: whoever leads then."""
    other: int
    """Another server beside the one that it happens to, as the distance from that: 1 or 2. Of the
    controllers 1 is the one that leads."""
    length_ms: int
    """How long it lasts; for a broker that dies, how long it is down."""


class ReplicatedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a seed decides."""

    seed: int
    promise: Promise
    sync_flush: bool
    flushed_reports: bool
    """Whether replicas acknowledge what is on their disks, not in memory."""
    slave_reads: bool
    has_learner: bool
    """Whether the third broker only learns."""
    store: ControllerStore
    controllers: int
    lease_ms: int
    heartbeat_timeout_ms: int
    poll_ms: int
    check_ms: int
    behind_max_ms: int
    slave_timeout_ms: int
    housekeeping_ms: int
    network_ms: tuple[int, int]
    drifts: tuple[int, ...]
    """Per mille by which the clock of each broker, and then of each controller, is fast."""
    loyal: tuple[int, ...]
    """For each producer the broker that it always sends to; `MASTER`: whoever takes messages."""
    has_deliveries: bool
    """Whether messages are sent at delay levels, at times and in transactions, too, and popped."""
    is_hurried: bool
    """Whether a fault comes before its time once the group has recovered from the one before it."""
    faults: tuple[PlannedFault, ...]

    @property
    def is_durable(self) -> bool:
        """Whether everything that is acknowledged is on every member's disk."""
        return self.sync_flush and self.flushed_reports

    @property
    def waits_for_all(self) -> bool:
        """Whether acknowledgements wait for the whole sync-state set."""
        return self.promise is not Promise.TWO_OF_THE_SET

    @property
    def members(self) -> frozenset[int]:
        """Numbers of the brokers that may be in the set."""
        return frozenset(range(1, BROKERS + 1 - self.has_learner))


def draw_scenario(seed: int, faults: int | None = None) -> ReplicatedScenario:
    """Draw the scenario of a seed; with `faults` a longer or shorter life of so many of them."""
    check_seed(seed)
    rng = Random(f"replicated {seed}")
    promise = rng.choice((Promise.WHOLE_SET, Promise.WHOLE_SET, *Promise))
    on_disks = promise is Promise.ON_DISKS
    store = rng.choice([*ControllerStore])
    return ReplicatedScenario(
        seed=seed,
        promise=promise,
        sync_flush=on_disks or rng.random() < 0.2,
        flushed_reports=on_disks or rng.random() < 0.3,
        slave_reads=rng.random() < 0.5,
        has_learner=promise is not Promise.TWO_OF_THE_SET and rng.random() < 0.1,
        store=store,
        controllers=rng.randint(2, CONTROLLERS_MAX) if store is ControllerStore.ETCD else 1,
        lease_ms=rng.choice((600, 1_000, 2_000, 2_000)),
        heartbeat_timeout_ms=rng.choice((1_500, 3_000, 3_000)),
        poll_ms=rng.choice((1_000, 2_000, 5_000)),
        check_ms=rng.choice((500, 2_000, 5_000)),
        behind_max_ms=rng.choice((1_500, 5_000, 15_000)),
        slave_timeout_ms=rng.choice((500, 1_500, 3_000)),
        housekeeping_ms=rng.choice((3_000, 6_000, 12_000)),
        network_ms=rng.choice(((0, 1), (0, 5), (1, 30))),
        drifts=tuple(rng.choice((-5, 0, 0, 5)) for _ in range(BROKERS + CONTROLLERS_MAX)),
        loyal=(MASTER, *(rng.choice((MASTER, 1, 2, 3)) for _ in range(3))),
        has_deliveries=Random(f"deliveries {seed}").random() < 0.5,
        is_hurried=faults is not None,
        faults=tuple(_with_strangers(_draw_life(rng, promise, store, faults), seed)),
    )


def _draw_life(
    rng: Random, promise: Promise, store: ControllerStore, count: int | None
) -> list[PlannedFault]:
    """Faults of a whole life: bursts of them, with time to heal in between."""
    faults, at_ms = list[PlannedFault](), FIRST_FAULT_MS
    victim = rng.randint(1, BROKERS) if promise is Promise.TWO_OF_THE_SET else None
    left = rng.randint(*BURST) if count is None else count
    while left > 0:
        size = min(left, BURST[1] if count is None else rng.randint(*BURST))
        pace = PACES[0] if not faults else rng.choice(PACES)
        burst = _draw_burst(rng, promise, store, victim, size, at_ms, pace)
        faults += burst
        at_ms = burst[-1].at_ms + rng.randrange(HEALING_MS)
        left -= size
    return faults


def _draw_burst(
    rng: Random,
    promise: Promise,
    store: ControllerStore,
    victim: int | None,
    size: int,
    at_ms: int,
    pace: float,
) -> list[PlannedFault]:
    """Faults that often overlap: what one leaves half done, the next one meets."""
    kinds: tuple[ReplicaFault, ...] = FAULTS
    if promise is Promise.ON_DISKS:
        kinds = ON_DISKS
    if promise is Promise.WHOLE_SET_ALONE:
        kinds = WITHOUT_POWER_LOSS
    if victim:
        kinds = AT_ONE_BROKER
    if store is ControllerStore.ETCD:
        kinds = (*kinds, *OF_ETCD)
    faults = list[PlannedFault]()
    for _ in range(size):
        at_ms += round(pace * rng.randrange(rng.choice(GAPS_MS)))
        broker = victim or rng.choice((MASTER, MASTER, MASTER, 1, 2, 3))
        length_ms = rng.randrange(20, rng.choice(LENGTHS_MS))
        fault = PlannedFault(
            at_ms=at_ms,
            fault=rng.choice(kinds),
            broker=broker,
            other=rng.randint(1, BROKERS - 1),
            length_ms=length_ms,
        )
        faults.append(fault)
    if victim is None and rng.random() < 0.2:
        at_ms += rng.randrange(3_000)
        rolling = ReplicaFault.ROLLING_RESTART
        faults.append(
            PlannedFault(
                at_ms=at_ms, fault=rolling, broker=1, other=1, length_ms=rng.randrange(500)
            )
        )
    return faults


def _with_strangers(faults: list[PlannedFault], seed: int) -> list[PlannedFault]:
    """A life in which strangers come to the master, perhaps, in place of some faults.

    The last one is such, since what it has done is not put right by another fault.
    """
    rng = Random(f"strangers {seed}")
    if rng.random() < 0.5:
        return faults
    strange = [rng.random() < STRANGERS for _ in faults[1:]] + [True]
    return [
        msgspec.structs.replace(fault, fault=ReplicaFault.STRANGER, broker=MASTER)
        if is_strange and fault.fault is not ReplicaFault.ROLLING_RESTART
        else fault
        for fault, is_strange in zip(faults, strange, strict=True)
    ]
