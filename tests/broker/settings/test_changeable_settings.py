"""A setting that is not `static` has an effect as soon as it changes.

Three checks hold that. Each setting is read through the cell at use, or by a function that is
called when settings change. No other place of the broker reads one, so no part can keep an old
value. The parts that do hold copies are changed on a running broker, setting by setting.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.conftest import LocalBroker

from roquet.broker.admission import KINDS
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import SETTINGS
from roquet.model.errors import CallRefused, MessageIllegal
from roquet.rules.quota import QuotaDirection
from roquet.rules.retention import RetentionPolicy
from roquet.store.store import Store
from roquet.wire.records.record import decode, decode_properties

BROKER = Path(__file__).parents[3] / "src" / "roquet" / "broker"

CHANGEABLE = frozenset(name for name, setting in SETTINGS.items() if not setting.needs_restart)

DERIVED = {
    "readable": "permission",
    "writable": "permission",
    "in_sync_replicas_min": "min_in_sync_replicas",
}
"""Properties of BrokerConfig, and the settings that they show."""

CONSTRUCTION = frozenset(("assembly.py", "app.py"))
"""Modules whose functions run once, when a broker starts."""

IN_FORCE = {
    "filtering/filter_cache.py:FilterCache.find": "its callers pass the settings in force",
    "filtering/filter_cache.py:FilterCache.precompile": "its callers pass the settings in force",
    "replication/controller_mode.py:failover_settings": "its caller passes the settings in force",
    "log/flush.py:FlushedView.__init__": "runs once, and `configure` follows",
    "log/flush.py:FlushedView.configure": "is a subscriber",
    "replication/control/machine_boot.py:acknowledges_flushed": "its callers pass the settings",
    "replication/confirmation/set_acknowledgements.py:policy_of": "its callers pass the settings",
    "services/broker_address.py:warn_of_refused_replicas": "speaks once, at the start",
    "services/transactions/checks.py:TransactionChecks._policy": "reads Transactions.config",
    "services/transactions/transactions.py:Transactions._write": "reads Transactions.config",
    "services/transactions/transactions.py:Transactions.end": "reads Transactions.config",
    "replication/fixed_roles.py:FixedRoles.configure": "is a subscriber",
    "replication/fixed_roles.py:_first_role": "runs once, and `configure` follows",
    "startup.py:warn_of_long_delays": "is a subscriber",
    "wiring.py:_retention_fault": "checks a change",
    "wiring.py:connect": "is a subscriber",
}
"""Places that are given the settings in force each time, and how."""

COPIES = {
    "admission.py:limits_of": "Admission.configure",
    "assembly.py:_Assembly._timer": "Timer.configure",
    "ingest/append.py:Ingest.__init__": "Ingest.configure",
    "ingest/append.py:Ingest.configure": "Ingest.configure",
    "ingest/append.py:Ingest._diverted": "Ingest.configure",
    "ingest/append.py:Ingest._half": "Ingest.configure",
    "ingest/append.py:Ingest.reappend": "Ingest.configure",
    "admission.py:RequestQuotas.configure": "Throttle.follow",
    "settings/store_settings.py:retention_policy": "Store.set_retention",
    "tables/topics.py:Topics.__init__": "Topics.configure",
    "tables/topics.py:Topics.configure": "Topics.configure",
    "tables/topics.py:system_topics": "Topics.configure",
}
"""Places that take settings for a part that holds them, and its subscriber."""


class SettingRead(NamedTuple):
    """One reading of a changeable setting in the broker's code."""

    name: str
    place: str
    is_through_cell: bool


def reads_in(tree: ast.Module, path: str) -> Iterator[SettingRead]:
    """Readings in one module, each with the function around it."""
    waiting: list[tuple[ast.AST, str, frozenset[str], bool]] = [
        (tree, "", frozenset(), path in CONSTRUCTION)
    ]
    while waiting:
        node, place, cells, is_once = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner, names, once = place, cells, is_once
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{place}.{child.name}".lstrip(".")
                names, once = frozenset(cell_names(child)), is_once or child.name == "__init__"
            elif isinstance(child, ast.Lambda):
                once = False  # it is called later
            elif isinstance(child, ast.Attribute) and child.attr in CHANGEABLE | DERIVED.keys():
                source = ast.unparse(child.value)
                if source.rpartition(".")[2] in ("config", "_config", "before"):
                    is_cell = source in cells or is_cell_text(source)
                    name = DERIVED.get(child.attr, child.attr)
                    yield SettingRead(name, f"{path}:{place}", is_cell and not is_once)
            waiting.append((child, inner, names, once))


def is_cell_text(source: str) -> bool:
    """Whether an expression reads the settings in force."""
    return source.endswith("settings.config")


def cell_names(function: ast.AST) -> Iterator[str]:
    """Local names that a function sets to the settings in force."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target, value in assigned(node):
            if is_cell_text(ast.unparse(value)):
                yield ast.unparse(target)


def assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets of an assignment with their values, those of tuples one by one."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def name_of(path: Path) -> str:
    return path.relative_to(BROKER).as_posix()


@pytest.fixture(scope="module")
def reads() -> list[SettingRead]:
    """Readings in the whole broker, but for the package that defines and formats settings."""
    definitions = {*(BROKER / "settings").glob("*.py")} - {BROKER / "settings/store_settings.py"}
    return [
        read
        for path in sorted({*BROKER.rglob("*.py")} - definitions)
        for read in reads_in(ast.parse(path.read_text("utf-8")), name_of(path))
    ]


def test_every_changeable_setting_is_read_where_a_change_is_seen(reads: list[SettingRead]) -> None:
    seen = {r.name for r in reads if r.is_through_cell or r.place in IN_FORCE | COPIES}
    assert CHANGEABLE - seen == set(), "has to be static, or a reader through RuntimeSettings"


def test_no_other_place_reads_a_changeable_setting(reads: list[SettingRead]) -> None:
    places = {read.place for read in reads if not read.is_through_cell}
    assert places - IN_FORCE.keys() - COPIES.keys() == set(), "it may keep an old value"
    assert IN_FORCE.keys() | COPIES.keys() == places, "these places read no setting any more"


@pytest.mark.parametrize(
    ("code", "is_through_cell"),
    [
        ("def f(control): return control.settings.config.region", True),
        ("def f(control):\n config = control.settings.config\n return config.region", True),
        ("def f(a):\n config, b = a.settings.config, 1\n return config.region", True),
        ("class A:\n def f(self): return self._settings.config.region", True),
        ("class A:\n def __init__(self, s): self.f = lambda: s.settings.config.region", True),
        ("def f(config): return config.region", False),
        ("class A:\n def f(self): return self._config.region", False),
        ("class A:\n def __init__(self, settings): self.r = settings.config.region", False),
        ("class A:\n def __init__(self, s):\n  c = config = s.settings.config\n  c(config.region)",
         False),
    ],
)  # fmt: skip
def test_a_value_taken_at_construction_is_a_copy(code: str, is_through_cell: bool) -> None:
    (read,) = reads_in(ast.parse(code), "a.py")
    assert (read.name, read.is_through_cell) == ("region", is_through_cell)


# -- parts that hold copies, on a running broker ----------------------------------------------


class CopyProof(NamedTuple):
    """A change of one setting, and an effect on a part that holds a copy of it."""

    text: str
    effect: Callable[["Rig"], object]
    expected: object


class Rig(NamedTuple):
    """A running broker, and ways to look at it."""

    broker: LocalBroker
    policies: list[RetentionPolicy]

    def stored_properties(self) -> dict[str, str]:
        """The properties with which a message is stored."""
        self.broker.send()
        store = self.broker.log.store
        (part,) = store.read("orders", 0, store.bounds("orders", 0)[1] - 1).parts
        return dict(decode_properties(decode(part).properties))

    def refuses_new_topic(self) -> bool:
        """Whether a send to a topic that does not exist is refused."""
        count = self.broker.tables.topics.version.counter
        return self.send_code(topic=f"unknown-{count}") != 0

    def send_code(self, **fields: Any) -> int:
        """The code of the reply to a send, or of its refusal."""
        try:
            reply = self.broker.send(**fields)
        except CallRefused as error:
            return int(error.code)
        return int(reply.code)


def capacity(kind: str) -> CopyProof:
    return CopyProof("7", lambda rig: rig.broker.control.admission.gates[kind].limits.count, 7)


def wait_max(kind: str) -> CopyProof:
    return CopyProof("9ms", lambda rig: rig.broker.control.admission.gates[kind].limits.wait_ms, 9)


def policy(field: str, text: str, expected: object) -> CopyProof:
    return CopyProof(text, lambda rig: getattr(rig.policies[-1], field), expected)


def body_fault(rig: Rig) -> str:
    try:
        rig.broker.log.ingest.check_size(b"four")
    except MessageIllegal as error:
        return str(error)
    return ""


PROOFS = {
    **{f"{kind}_capacity": capacity(kind) for kind in sorted({*KINDS.values(), "admin"})},
    **{
        f"{kind}_wait_max": wait_max(kind)
        for kind in sorted({*KINDS.values(), "admin"} - {"query"})
    },
    "fast_failure": CopyProof(
        "false", lambda rig: rig.broker.control.admission.gates["send"].limits.wait_ms, None
    ),
    "retention": policy("reserved_ms", "48h", 48 * 3_600_000),
    "delete_hour": policy("delete_hour", "7", 7),
    "expire_ratio": policy("expire_ratio", "0.5", 0.5),
    "force_ratio": policy("force_ratio", "0.6", 0.6),
    "refuse_ratio": policy("refuse_ratio", "0.7", 0.7),
    "free_min": policy("free_min", "5000", 5_000),
    "force_unread": policy("force_unread", "true", True),
    "max_message_size": CopyProof("3", lambda rig: body_fault(rig) != "", True),
    "region": CopyProof("west", lambda rig: rig.stored_properties()["MSG_REGION"], "west"),
    "trace_on": CopyProof("false", lambda rig: rig.stored_properties()["TRACE_ON"], "false"),
    "auto_create_topic": CopyProof("false", lambda rig: rig.refuses_new_topic(), True),
    "reject_transactions": CopyProof(
        "true", lambda rig: rig.send_code(properties="TRAN_MSG\x01true\x02") != 0, True
    ),
    "quotas": CopyProof(
        "topic:* send 1/s",
        lambda rig: rig.broker.control.quotas.buckets[QuotaDirection.SEND].is_empty,
        False,
    ),
    "timer_max_delay": CopyProof(
        "1s", lambda rig: rig.send_code(properties="TIMER_DELAY_MS\x0160000\x02") != 0, True
    ),
}
"""For each setting of which a part holds a copy: a new value and where it shows."""


def test_every_setting_that_a_part_copies_has_a_proof(reads: list[SettingRead]) -> None:
    copied = {read.name for read in reads if read.place in COPIES}
    assert {*PROOFS} == copied


@pytest.fixture
def rig(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> Rig:
    policies: list[RetentionPolicy] = []
    set_retention = Store.set_retention

    def recording(store: Store, policy: RetentionPolicy) -> None:
        policies.append(policy)
        set_retention(store, policy)

    monkeypatch.setattr(Store, "set_retention", recording)
    broker.configure(query_count_max="63")  # subscribers have been called
    return Rig(broker, policies)


@pytest.mark.parametrize("name", PROOFS)
async def test_a_change_reaches_the_part_that_holds_a_copy(rig: Rig, name: str) -> None:
    proof, settings = PROOFS[name], rig.broker.control.settings
    default = getattr(BrokerConfig(), name)
    assert proof.effect(rig) != proof.expected
    assert settings.change({name: proof.text}, 0)
    assert getattr(settings.config, name) != default
    assert proof.effect(rig) == proof.expected
