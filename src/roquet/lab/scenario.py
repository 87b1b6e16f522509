"""Scenario: what happens to a group in every history: its size, its changes, its messages, times.

A scenario is one of the presets, or a JSON file that names the one it is like and what differs:

    {"like": "crash", "members": 12, "times": {"invisible_ms": 30000}}
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.model.errors import UsageError
from roquet.model.settings import suggest
from roquet.rules.balance.handover import HANDOVER_MS
from roquet.rules.liveness import SILENCE_MS_MAX

QUEUES_MAX: Final = 1_000
MEMBERS_MAX: Final = 200
CHANGES_MAX: Final = 1_000
MESSAGES_MAX: Final = 100_000
KEYS_MAX: Final = 1_000_000
COMERS_MAX: Final = 1_200
"""Larger ones are no mistake, but a history would take seconds and a batch of them gigabytes."""

DAY_MS: Final = 86_400_000


class ScenarioTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things take, in ms; the defaults are those of our client and broker."""

    silent_ms: int = SILENCE_MS_MAX
    """Until a machine that went silent is given up: `rules.liveness.SILENCE_MS_MAX`."""
    killed_ms: int = 0
    """Until a killed process is: its connection ends with it, which the broker sees at once."""
    notice_ms: int = 100
    """Until members have heard of a change and looked: a round figure for a few calls."""
    loser_ms: int = 800
    """How long a handler at work holds up its queue: `client.holding.HANDOVER_MS`."""
    taker_ms: int = HANDOVER_MS
    """How long a taker waits for the loser's commit: `rules.balance.handover.HANDOVER_MS`."""
    lock_ms: int = 60_000
    """The same in an ordered group, where a lock parts them: `broker.tables.locks.LIFETIME_MS`."""
    close_ms: int = 30_000
    """How long one who leaves waits for its handlers: `ConsumerConfig.close_timeout_ms`."""
    save_ms: int = 5_000
    """Between two commits: `ConsumerConfig.save_period_ms`."""
    invisible_ms: int = 60_000
    """How long nobody else gets a popped message: `ConsumerConfig.invisible_ms`."""
    review_ms: int = 20_000
    """LAG_WEIGHTED looks again at what waits: `broker.services.assign.REVIEW_MS`."""


class LabScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every history has; what differs between them is drawn from their seeds."""

    name: str = "own"
    about: str = ""
    queues: int = 8
    brokers: int = 2
    members: int = 4
    """At the beginning."""
    messages: int = 1_500
    duration_ms: int = 180_000
    load: float = 0.6
    """Of what the first members can handle: how much the messages need on average."""
    joins: int = 0
    leaves: int = 0
    """Members that close as they should."""
    kills: int = 0
    """Processes that die; their connections tell."""
    crashes: int = 0
    """Machines that fall silent; nobody tells."""
    restarts: int = 0
    """Of a rolling restart: one member after the other leaves and comes back."""
    restarts_killed: bool = False
    """Whether those are killed and do not leave as they should."""
    restart_ms: int = 10_000
    """Until a restarted member is back."""
    slow_brokers: int = 0
    slow_broker_ms: int = 1_000
    """How long a send to a slow broker takes, and how much later its messages can be had."""
    slow_members: int = 0
    """Of the first ones."""
    slow_factor: float = 4.0
    """How many times as long a slow member takes."""
    keys: int = 0
    """Different keys; 0: messages have none, and go to the queues in turn."""
    zipf: float = 0.0
    """The exponent of Zipf's law: how unlike the keys are; 0 is all alike."""
    key_weights: tuple[int, ...] = ()
    """How often each key comes, instead of Zipf's law: a trace."""
    rhythm: tuple[float, ...] = ()
    """How busy each part of the history is, in equal parts: a trace; none is even."""
    sigma: float = 0.5
    """The sigma of the lognormal times that messages take."""
    ordered: bool = False
    """Whether the group is ordered: a queue goes on when the loser's handler has ended."""
    times: ScenarioTimes = ScenarioTimes()

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages * 1_000 / self.duration_ms

    @property
    def work_ms(self) -> float:
        """How long a message takes on average."""
        return self.load * self.members * self.duration_ms / self.messages

    @property
    def changes(self) -> int:
        """How many times members come or go; a restart is two."""
        return self.joins + self.leaves + self.kills + self.crashes + 2 * self.restarts

    @property
    def keyed(self) -> bool:
        """Whether messages have keys."""
        return bool(self.keys or self.key_weights)

    def describe(self) -> str:
        """The scenario in a line."""
        return (
            f"{_count(self.queues, 'queue')} on {_count(self.brokers, 'broker')}, "
            f"{_count(self.members, 'member')}, {_count(self.changes, 'change')}, "
            f"{_count(self.messages, 'message')} in {self.duration_ms / 60_000:g} min, "
            f"{self.work_ms:,.0f} ms each on average"
        )


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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
"""The least and the most of each number."""


def validated(scenario: LabScenario) -> LabScenario:
    """The same, or a UsageError that says what makes no sense."""
    describe = f"scenario {scenario.name}"
    for name, (least, most) in _LIMITS.items():
        value = getattr(scenario, name)
        if not least <= value <= most:
            raise UsageError(f"{describe}: {name} is {value}, and has to be {least:,} to {most:,}")
    for name in ScenarioTimes.__struct_fields__:
        if not 0 <= (value := getattr(scenario.times, name)) <= DAY_MS:
            raise UsageError(
                f"{describe}: times.{name} is {value} ms, and has to be 0 to {DAY_MS:,}"
            )
    for name in ("invisible_ms", "save_ms", "review_ms"):
        if not getattr(scenario.times, name):
            raise UsageError(f"{describe}: times.{name} cannot be 0")
    if wrong := _contradiction(scenario):
        raise UsageError(f"{describe}: {wrong}")
    return scenario


def _contradiction(scenario: LabScenario) -> str | None:
    """The first thing that does not go together."""
    given = scenario
    comers = given.members + given.joins + given.restarts
    faults = {
        f"{given.queues} queues are too few for {given.brokers} brokers": (
            given.queues < given.brokers
        ),
        f"{given.slow_brokers} of {given.brokers} brokers cannot be slow": (
            given.slow_brokers > given.brokers
        ),
        f"{given.slow_members} of {given.members} members cannot be slow": (
            given.slow_members > given.members
        ),
        f"{comers:,} members in one history are too many": comers > COMERS_MAX,
        "zipf says how unlike keys are: say how many there are, too": (
            bool(given.zipf) and not given.keys
        ),
        f"{len(given.key_weights):,} key_weights are too many": len(given.key_weights) > KEYS_MAX,
        "key_weights has to have numbers over 0": _is_empty(given.key_weights),
        "rhythm has to have numbers over 0": _is_empty(given.rhythm),
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
        about="Twenty changes, few messages: what the lab's speed is told of.",
        messages=200,
        duration_ms=600_000,
        joins=8,
        leaves=6,
        kills=6,
    ),
)

FLIGHTS: Final = "flights"
"""The preset whose trace comes from a data set: what reads it lays the trace into this one."""

FLIGHTS_SCENARIO: Final = LabScenario(
    name=FLIGHTS,
    about="Departures from New York City: keys are aircraft, and a day has its rhythm.",
    messages=1_500,
    ordered=True,
    restarts=4,
)


def preset_names() -> list[str]:
    """All presets."""
    return [*PRESETS, FLIGHTS]


def preset(name: str) -> LabScenario:
    """A preset by its name, without the trace that it may need; UsageError with the nearest."""
    if name == FLIGHTS:
        return FLIGHTS_SCENARIO
    if name not in PRESETS:
        raise UsageError(
            f"there is no scenario {name!r}{suggest(name, preset_names())}"
            f" There are {', '.join(preset_names())}; or give a JSON file."
        )
    return PRESETS[name]


def from_file(path: Path) -> LabScenario:
    """A scenario of one's own: what it is like, and what differs."""
    try:
        given = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise UsageError(f"{path} has to hold one JSON object")
    given.setdefault("name", path.stem)
    return validated(_build(given, str(path)))


def _build(given: dict[str, Any], where: str) -> LabScenario:
    like = given.pop("like", None)
    if like is not None and not isinstance(like, str):
        raise UsageError(f"{where}: like is the name of a scenario, not {like!r}")
    start = msgspec.to_builtins(preset(like) if like else LabScenario())
    _check_names(given, LabScenario, where)
    times = given.get("times", {})
    if isinstance(times, dict):
        _check_names(times, ScenarioTimes, where)
        given["times"] = start["times"] | times
    try:
        return msgspec.convert({**start, **given}, LabScenario, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from error


def _check_names(given: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    for name in given:
        if name not in kind.__struct_fields__:
            hint = suggest(name, kind.__struct_fields__)
            raise UsageError(f"{where}: a scenario has no field {name!r}{hint}")
