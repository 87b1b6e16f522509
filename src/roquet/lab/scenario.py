"""Scenario: the parameters of all histories of a study: group, messages, changes and times.

A scenario is one of the presets, or a JSON file that names a preset and what differs from it:

    {"like": "crash", "members": 12, "times": {"invisible_ms": 30000}}
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.model.errors import UsageError
from roquet.model.printable_text import quantity
from roquet.model.settings import suggest
from roquet.rules.balance.handover import HANDOVER_MS
from roquet.rules.liveness import SILENCE_MS_MAX

QUEUES_MAX: Final = 1_000
MEMBERS_MAX: Final = 200
CHANGES_MAX: Final = 1_000
MESSAGES_MAX: Final = 100_000
KEYS_MAX: Final = 1_000_000
HISTORY_MEMBERS_MAX: Final = 1_200
"""Limits: with larger scenarios one history would take seconds, and a batch of them gigabytes."""

DAY_MS: Final = 86_400_000


class ScenarioTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations in ms; the defaults are those of our client and broker."""

    silent_ms: int = SILENCE_MS_MAX
    """Until the broker drops a silent machine: `rules.liveness.SILENCE_MS_MAX`."""
    killed_ms: int = 0
    """Until the broker drops a killed process: at once, because its connection ends with it."""
    notice_ms: int = 100
    """Until members have learned of a change and rebalanced: a round figure for a few calls."""
    loser_ms: int = 800
    """Longest wait of an old owner for its handler:
    `client.rebalance.assigned_queues.HANDOVER_MS`."""
    taker_ms: int = HANDOVER_MS
    """Longest wait of a new owner for a commit: `rules.balance.handover.HANDOVER_MS`."""
    lock_ms: int = 60_000
    """Longest wait in an ordered group, by the lock: `broker.tables.locks.LIFETIME_MS`."""
    close_ms: int = 30_000
    """Longest wait of a closing member for its handlers: `ConsumerConfig.close_timeout_ms`."""
    save_ms: int = 5_000
    """Between two commits: `ConsumerConfig.save_period_ms`."""
    invisible_ms: int = 60_000
    """Time for which a popped message is invisible: `ConsumerConfig.invisible_ms`."""
    review_ms: int = 20_000
    """Period of LAG_WEIGHTED's reviews: `broker.services.broker_rebalance.REVIEW_MS`."""


class LabScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters that all histories share; the rest is drawn from the seed of each."""

    name: str = "own"
    about: str = ""
    queues: int = 8
    brokers: int = 2
    members: int = 4
    """Members at the beginning."""
    messages: int = 1_500
    duration_ms: int = 180_000
    load: float = 0.6
    """Work of all messages, as a part of what the initial members can handle."""
    joins: int = 0
    leaves: int = 0
    """Members that close regularly."""
    kills: int = 0
    """Processes that are killed; the broker sees their connections end."""
    crashes: int = 0
    """Machines that fall silent; the broker notices after `silent_ms`."""
    restarts: int = 0
    """Members of a rolling restart: one after the other leaves, and another one joins."""
    restarts_killed: bool = False
    """Whether restarted members are killed, instead of closing regularly."""
    restart_ms: int = 10_000
    """Time until a restarted member is back."""
    slow_brokers: int = 0
    slow_broker_ms: int = 1_000
    """Duration of a send to a slow broker, and delay until its messages can be pulled."""
    slow_members: int = 0
    """Slow ones among the initial members."""
    slow_factor: float = 4.0
    """How many times longer a slow member takes."""
    keys: int = 0
    """Number of different keys; 0 for messages without keys, which go to the queues in turn."""
    zipf: float = 0.0
    """The exponent of Zipf's law for the frequency of keys; 0 for equal frequencies."""
    key_weights: tuple[int, ...] = ()
    """The frequency of each key, from a trace, instead of Zipf's law."""
    rhythm: tuple[float, ...] = ()
    """The relative load of equal parts of the history, from a trace; empty for an even load."""
    sigma: float = 0.5
    """Sigma of the lognormal distribution of handling times."""
    ordered: bool = False
    """Whether the group is ordered: a queue continues once the old owner's handler has ended."""
    times: ScenarioTimes = ScenarioTimes()

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages * 1_000 / self.duration_ms

    @property
    def work_ms(self) -> float:
        """The mean handling time of a message, in ms."""
        return self.load * self.members * self.duration_ms / self.messages

    @property
    def changes(self) -> int:
        """The number of membership changes; a restart counts twice."""
        return self.joins + self.leaves + self.kills + self.crashes + 2 * self.restarts

    @property
    def keyed(self) -> bool:
        """Whether messages have keys."""
        return bool(self.keys or self.key_weights)

    def describe(self) -> str:
        """The scenario in one line."""
        return (
            f"{quantity(self.queues, 'queue')} on {quantity(self.brokers, 'broker')}, "
            f"{quantity(self.members, 'member')}, {quantity(self.changes, 'change')}, "
            f"{quantity(self.messages, 'message')} in {self.duration_ms / 60_000:g} min, "
            f"{self.work_ms:,.0f} ms each on average"
        )


_LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "queues": (1, QUEUES_MAX),
    "brokers": (1, 26),
    "members": (1, MEMBERS_MAX),
    "messages": (1, MESSAGES_MAX),
    "duration_ms": (1_000, 30 * DAY_MS),
    "load": (0.001, 10),
    "joins": (0, CHANGES_MAX),
    "leaves": (0, CHANGES_MAX),
    "kills": (0, CHANGES_MAX),
    "crashes": (0, CHANGES_MAX),
    "restarts": (0, CHANGES_MAX),
    "restart_ms": (0, DAY_MS),
    "slow_brokers": (0, 26),
    "slow_broker_ms": (0, DAY_MS),
    "slow_members": (0, MEMBERS_MAX),
    "slow_factor": (1, 1_000),
    "keys": (0, KEYS_MAX),
    "zipf": (0, 10),
    "sigma": (0, 4),
}
"""The minimum and maximum of each number, both inclusive."""


def validated(scenario: LabScenario) -> LabScenario:
    """The scenario itself; UsageError when it is not valid."""
    label = f"scenario {scenario.name}"
    for name, (least, most) in _LIMITS.items():
        value = getattr(scenario, name)
        if not least <= value <= most:
            raise UsageError(f"{label}: {name} is {value}, and has to be {least:,} to {most:,}")
    for name in ScenarioTimes.__struct_fields__:
        if not 0 <= (value := getattr(scenario.times, name)) <= DAY_MS:
            raise UsageError(f"{label}: times.{name} is {value} ms, and has to be 0 to {DAY_MS:,}")
    for name in ("invisible_ms", "save_ms", "review_ms"):
        if not getattr(scenario.times, name):
            raise UsageError(f"{label}: times.{name} cannot be 0")
    if wrong := _contradiction(scenario):
        raise UsageError(f"{label}: {wrong}")
    return scenario


def _contradiction(scenario: LabScenario) -> str | None:
    """The first contradiction between values; None when there is none."""
    members = scenario.members + scenario.joins + scenario.restarts
    faults = {
        f"{scenario.queues} queues are too few for {scenario.brokers} brokers": (
            scenario.queues < scenario.brokers
        ),
        f"{scenario.slow_brokers} of {scenario.brokers} brokers cannot be slow": (
            scenario.slow_brokers > scenario.brokers
        ),
        f"{scenario.slow_members} of {scenario.members} members cannot be slow": (
            scenario.slow_members > scenario.members
        ),
        f"{members:,} members in one history are too many": members > HISTORY_MEMBERS_MAX,
        "zipf needs the number of keys, too": (bool(scenario.zipf) and not scenario.keys),
        f"{len(scenario.key_weights):,} key_weights are too many": len(scenario.key_weights)
        > KEYS_MAX,
        "key_weights needs numbers over 0": _is_empty(scenario.key_weights),
        "rhythm needs numbers over 0": _is_empty(scenario.rhythm),
    }
    return next((text for text, is_so in faults.items() if is_so), None)


def _is_empty(weights: Sequence[float]) -> bool:
    return bool(weights) and (min(weights) < 0 or not sum(weights))


def _presets(*scenarios: LabScenario) -> dict[str, LabScenario]:
    return {scenario.name: scenario for scenario in scenarios}


PRESETS: Final[Mapping[str, LabScenario]] = _presets(
    LabScenario(
        name="steady", about="One member joins and one leaves; all else is even.", joins=1, leaves=1
    ),
    LabScenario(
        name="rolling-restart-graceful",
        restarts=4,
        about="Every member is closed and started again, one after the other.",
    ),
    LabScenario(
        name="rolling-restart-killed",
        restarts=4,
        restarts_killed=True,
        about="Every member is killed and started again, one after the other.",
    ),
    LabScenario(
        name="crash",
        about="A machine falls silent: two minutes pass until it is given up.",
        crashes=1,
        messages=4_000,
        duration_ms=600_000,
    ),
    LabScenario(
        name="slow-broker",
        about="One of four brokers takes a second for everything.",
        brokers=4,
        slow_brokers=1,
        joins=1,
        leaves=1,
    ),
    LabScenario(
        name="slow-member",
        about="One of four members takes four times as long.",
        slow_members=1,
        load=0.5,
        joins=1,
    ),
    LabScenario(
        name="zipf-keys",
        about="A few keys have most of the messages, whose order matters.",
        keys=1_000,
        zipf=1.1,
        ordered=True,
        joins=1,
        leaves=1,
    ),
    LabScenario(
        name="heavy-work", about="A few messages take very long.", sigma=1.5, joins=1, leaves=1
    ),
    LabScenario(
        name="more-members",
        about="Twelve members, and only eight queues for them.",
        members=12,
        joins=1,
        kills=1,
    ),
    LabScenario(
        name="many-queues",
        about="64 queues, 16 members, and a change every half a minute.",
        queues=64,
        brokers=4,
        members=16,
        messages=6_000,
        duration_ms=300_000,
        joins=4,
        leaves=3,
        kills=3,
    ),
    LabScenario(
        name="churn",
        about="Twenty changes and few messages: the lab's benchmark.",
        messages=200,
        duration_ms=600_000,
        joins=8,
        leaves=6,
        kills=6,
    ),
)

FLIGHTS: Final = "flights"
"""A preset that gets its key weights and rhythm from a data set, when it is read."""

FLIGHTS_SCENARIO: Final = LabScenario(
    name=FLIGHTS,
    about="Departures from New York City: keys are aircraft, and a day has its rhythm.",
    messages=1_500,
    ordered=True,
    restarts=4,
)


def preset_names() -> list[str]:
    """The names of all presets."""
    return [*PRESETS, FLIGHTS]


def preset(name: str) -> LabScenario:
    """A preset by its name, without its trace; UsageError with a suggestion for unknown names."""
    if name == FLIGHTS:
        return FLIGHTS_SCENARIO
    if name not in PRESETS:
        raise UsageError(
            f"there is no scenario {name!r}{suggest(name, preset_names())}"
            f" There are {', '.join(preset_names())}; or give a JSON file."
        )
    return PRESETS[name]


def from_file(path: Path) -> LabScenario:
    """Read a scenario from a JSON file; UsageError for an invalid one."""
    try:
        fields = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{path} has to hold one JSON object")
    fields.setdefault("name", path.stem)
    return validated(_build(fields, str(path)))


def _build(fields: dict[str, Any], where: str) -> LabScenario:
    like = fields.pop("like", None)
    if like is not None and not isinstance(like, str):
        raise UsageError(f"{where}: like is the name of a scenario, not {like!r}")
    start = msgspec.to_builtins(preset(like) if like else LabScenario())
    _check_names(fields, LabScenario, where)
    times = fields.get("times", {})
    if isinstance(times, dict):
        _check_names(times, ScenarioTimes, where)
        fields["times"] = start["times"] | times
    try:
        return msgspec.convert({**start, **fields}, LabScenario, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from error


def _check_names(fields: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    for name in fields:
        if name not in kind.__struct_fields__:
            hint = suggest(name, kind.__struct_fields__)
            raise UsageError(f"{where}: a scenario has no field {name!r}{hint}")
