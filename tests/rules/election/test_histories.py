"""Histories of a group with leases, elections and lost messages of the protocol, at random.

Each broker and the controller have a clock of their own. A broker that does nothing for a while is
frozen, or parted from the others; what is sent may arrive late, in any order, or never.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.rules.election.conftest import ADDRESSES, group_of

from roquet.rules.election import elect as election
from roquet.rules.election import lease as leases
from roquet.rules.election.elect import Candidate, ElectionFacts, ElectionRequest
from roquet.rules.election.group import Refusal, ReplicaGroup, SetChange, alter_set
from roquet.rules.election.lease import LeaseRequest, LeaseTerms, MasterLease, MasterTerm
from roquet.rules.replication.acknowledgement import (
    ALL_OF_THE_SET,
    confirmed_position,
    replicated_position,
)
from roquet.rules.replication.sync_state import ReplicaReportFacts, SyncState, may_join

IDS = st.sampled_from([1, 2, 3])
TERMS = LeaseTerms(length_ms=1_000, drift_per_mille=100)
Log = tuple[tuple[int, int], ...]
"""Messages, each with the epoch in which it was written and a number of its own."""


@dataclass
class Clock:
    """Clock that shows true time from some start on, at a rate of its own."""

    start: int
    rate: float

    def now(self, true_ms: int) -> int:
        return int(self.start + true_ms * self.rate)


@dataclass
class Broker:
    """One broker: its log, and what it knows."""

    broker_id: int
    clock: Clock
    log: Log = ()
    epoch: int = 0
    """Epoch in which it leads or follows."""
    leads: bool = False
    state: SyncState | None = None
    term: MasterTerm | None = None
    reports: dict[int, int] = field(default_factory=dict)
    confirmed: int = 0
    epoch_start: int = 0

    def may_acknowledge(self, true_ms: int) -> bool:
        now_ms = self.clock.now(true_ms)
        return (
            self.leads and self.term is not None and self.term.may_acknowledge(self.epoch, now_ms)
        )

    @property
    def others(self) -> frozenset[int]:
        """Replicas that have to acknowledge."""
        assert self.state is not None
        return self.state.acknowledging - {self.broker_id}


@dataclass
class Sent:
    """A request of a master on its way, and then the answer to it."""

    sender: int
    epoch: int
    request: Any
    asked_ms: int
    answer: Any = None


def common_prefix(one: Log, other: Log) -> Log:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return one[:same]


class GroupHistory(RuleBasedStateMachine):
    """Three brokers, one controller."""

    def __init__(self) -> None:
        super().__init__()
        self.true_ms = 0
        self.number = 0
        self.lease: MasterLease | None = None
        self.live: dict[int, Candidate] = {}
        self.sent: list[Sent] = []
        self.acknowledged: set[tuple[int, int]] = set()
        self.masters: dict[int, int] = {}

    @initialize(
        rates=st.lists(st.floats(0.9, 1.1), min_size=4, max_size=4), waits_for_all=st.booleans()
    )
    def begin(self, rates: list[float], *, waits_for_all: bool) -> None:
        self.waits_for_all = waits_for_all
        self.clock = Clock(7_000, rates[0])
        self.brokers = {n: Broker(n, Clock(1_000 * n, rates[n])) for n in (1, 2, 3)}
        self.group = group_of(1, 2, 3)
        self.run_election(ElectionRequest(asker=1))
        for n in (1, 2, 3):
            self.a_heartbeat_arrives(n)
            self.a_broker_learns_who_leads(n)
        self.a_lease_is_renewed(1)
        for n in (2, 3):
            self.a_replica_copies(n, 1, 0)
            self.the_set_is_changed(1, n)

    # What the group's state may become.

    def store(self, group: ReplicaGroup, *, is_unclean: bool = False) -> None:
        before, self.group = self.group, group
        assert group.master_epoch >= before.master_epoch
        assert group.set_version >= before.set_version
        assert group.in_sync or not group.master_epoch
        assert group.master is None or group.master in group.in_sync
        if group.master is not None and group.master_epoch > before.master_epoch:
            assert group.master_epoch not in self.masters, "one master in each epoch"
            self.masters[group.master_epoch] = group.master
            assert is_unclean or not before.master_epoch or group.master in before.in_sync
            if is_unclean:
                self.acknowledged &= set(self.brokers[group.master].log)

    # Time and liveness.

    @rule(ms=st.sampled_from([1, 10, 100, 400, 1_000, 3_000]))
    def time_passes(self, ms: int) -> None:
        self.true_ms += ms

    @rule()
    def the_controllers_wait_for_the_lease_ends(self) -> None:
        if self.lease is not None:
            left = (self.lease.until_ms - self.clock.start) / self.clock.rate
            self.true_ms = max(self.true_ms, ceil(left))

    @rule(broker_id=IDS)
    def a_heartbeat_arrives(self, broker_id: int) -> None:
        log = self.brokers[broker_id].log
        self.live[broker_id] = Candidate(epoch=log[-1][0] if log else -1, end=len(log))

    @rule(broker_id=IDS)
    def a_broker_counts_as_dead(self, broker_id: int) -> None:
        self.live.pop(broker_id, None)

    @rule(start=st.integers(0, 10**6))
    def another_controller_leads(self, start: int) -> None:
        self.clock = Clock(start, self.clock.rate)
        self.live = {}
        self.lease = leases.assumed_lease(self.clock.now(self.true_ms), TERMS)

    # Elections, and brokers that learn of them.

    @rule(
        asker=st.none() | IDS,
        designated=st.booleans(),
        unclean=st.integers(0, 9).map(lambda n: n == 0),
    )
    def somebody_asks_for_an_election(
        self, asker: int | None, *, designated: bool, unclean: bool
    ) -> None:
        request = ElectionRequest(
            asker=asker, designated=designated and asker is not None, unclean=unclean
        )
        self.run_election(request)

    def run_election(self, request: ElectionRequest) -> None:
        now_ms = self.clock.now(self.true_ms)
        facts = ElectionFacts(live=self.live, lease=self.lease, now_ms=now_ms)
        result = election.elect(self.group, request, facts)
        assert request.unclean or not result.is_unclean
        self.store(result.group, is_unclean=result.is_unclean)

    @rule(broker_id=IDS)
    def a_broker_learns_who_leads(self, broker_id: int) -> None:
        broker, group = self.brokers[broker_id], self.group
        if group.master_epoch <= broker.epoch or group.master is None:
            return
        self.stop_leading(broker)
        if group.master == broker_id:
            broker.epoch, broker.leads = group.master_epoch, True
            broker.state = SyncState(members=group.in_sync, version=group.set_version)
            broker.confirmed = broker.epoch_start = len(broker.log)
            return
        master = self.brokers[group.master]
        if master.leads and master.epoch == group.master_epoch:
            broker.epoch = group.master_epoch
            broker.log = common_prefix(broker.log, master.log)

    def stop_leading(self, broker: Broker) -> None:
        broker.leads, broker.state, broker.term, broker.reports = False, None, None, {}

    @rule(asker=st.none() | IDS)
    def a_dead_master_is_replaced(self, asker: int | None) -> None:
        if self.group.master is not None:
            self.live.pop(self.group.master, None)
        self.run_election(ElectionRequest(asker=asker))
        if self.group.master is not None:
            self.a_broker_learns_who_leads(self.group.master)
            self.a_lease_is_renewed(self.group.master)

    @rule(broker_id=IDS)
    def a_broker_restarts(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        self.stop_leading(broker)
        broker.epoch = 0
        self.a_heartbeat_arrives(broker_id)
        if self.lease is not None:
            now_ms = self.clock.now(self.true_ms)
            self.lease = leases.released_lease(self.lease, broker_id, ADDRESSES[broker_id], now_ms)
        self.run_election(ElectionRequest(asker=broker_id, restarted=True))

    # Writes, copies and acknowledgements.

    @rule(broker_id=IDS, count=st.integers(1, 3))
    def a_master_writes(self, broker_id: int, count: int) -> None:
        broker = self.brokers[broker_id]
        if broker.leads:
            numbers = range(self.number, self.number + count)
            broker.log += tuple((broker.epoch, n) for n in numbers)
            self.number += count

    @rule(broker_id=IDS, master_id=IDS, behind=st.sampled_from([0, 0, 1]))
    def a_replica_copies(self, broker_id: int, master_id: int, behind: int) -> None:
        broker, master = self.brokers[broker_id], self.brokers[master_id]
        if broker.leads or not master.leads or broker.epoch != master.epoch:
            return
        end = max(len(master.log) - behind, len(broker.log))
        broker.log = master.log[:end]
        master.reports[broker_id] = end

    @rule(broker_id=IDS)
    def a_master_acknowledges(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.may_acknowledge(self.true_ms):
            return
        needed = ALL_OF_THE_SET if self.waits_for_all else 1
        end, others = len(broker.log), broker.others
        position = replicated_position(needed, end, broker.reports, others)
        broker.confirmed = confirmed_position(broker.confirmed, end, broker.reports, others)
        self.acknowledged |= set(broker.log[broker.epoch_start : position])

    # Requests of masters: leases, changes of the set.

    def send(self, broker: Broker, request: Any) -> None:
        asked_ms = broker.clock.now(self.true_ms)
        self.sent.append(Sent(broker.broker_id, broker.epoch, request, asked_ms))

    @rule(broker_id=IDS)
    def a_master_asks_for_a_lease(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.leads:
            request = LeaseRequest(
                broker_id=broker_id,
                address=ADDRESSES[broker_id],
                epoch=broker.epoch,
                waits_for_all=self.waits_for_all,
            )
            self.send(broker, request)

    @rule(broker_id=IDS, other=IDS)
    def a_master_proposes_a_change(self, broker_id: int, other: int) -> None:
        broker = self.brokers[broker_id]
        state = broker.state
        if not broker.leads or other == broker_id or state is None or state.proposed is not None:
            return
        members = state.members - {other}
        if other not in state.members:
            facts = ReplicaReportFacts(broker_id=other, report=broker.reports.get(other, -1))
            start = broker.epoch_start
            if not may_join(facts, state, confirmed=broker.confirmed, epoch_start=start):
                return
            members = state.members | {other}
        broker.state = state.propose(members)
        self.send(
            broker,
            SetChange(
                master=broker_id,
                master_epoch=broker.epoch,
                members=members,
                set_version=state.version,
            ),
        )

    @precondition(lambda self: self.sent)
    @rule(index=st.integers(0, 9))
    def a_request_arrives(self, index: int) -> None:
        sent = self.sent[index % len(self.sent)]
        if sent.answer is not None:
            return
        if isinstance(sent.request, LeaseRequest):
            now_ms = self.clock.now(self.true_ms)
            sent.answer = leases.grant_lease(self.group, self.lease, sent.request, now_ms, TERMS)
            if isinstance(sent.answer, MasterLease):
                self.lease = sent.answer
        else:
            sent.answer = alter_set(self.group, sent.request, self.live)
            if isinstance(sent.answer, ReplicaGroup):
                self.store(sent.answer)

    @precondition(lambda self: self.sent)
    @rule(index=st.integers(0, 9))
    def an_answer_arrives(self, index: int) -> None:
        sent = self.sent[index % len(self.sent)]
        if sent.answer is None:
            return
        self.sent.remove(sent)
        broker = self.brokers[sent.sender]
        if not broker.leads or broker.epoch != sent.epoch or broker.state is None:
            return
        match sent.answer:
            case MasterLease():
                broker.term = leases.granted_term(sent.epoch, sent.asked_ms, TERMS)
            case ReplicaGroup(in_sync=members, set_version=version):
                broker.state = broker.state.adopt(members, version)
            case Refusal() if isinstance(sent.request, SetChange):
                broker.state = broker.state.withdraw()

    @rule(broker_id=IDS)
    def a_lease_is_renewed(self, broker_id: int) -> None:
        self.a_master_asks_for_a_lease(broker_id)
        self.the_last_request_is_answered(broker_id)

    @rule(broker_id=IDS, other=IDS)
    def the_set_is_changed(self, broker_id: int, other: int) -> None:
        count = len(self.sent)
        self.a_master_proposes_a_change(broker_id, other)
        if len(self.sent) > count:
            self.the_last_request_is_answered(broker_id)

    def the_last_request_is_answered(self, broker_id: int) -> None:
        if self.brokers[broker_id].leads:
            self.a_request_arrives(len(self.sent) - 1)
            self.an_answer_arrives(len(self.sent) - 1)

    @precondition(lambda self: self.sent)
    @rule(index=st.integers(0, 9))
    def a_message_is_lost(self, index: int) -> None:
        self.sent.pop(index % len(self.sent))

    @rule(broker_id=IDS)
    def a_master_asks_what_its_set_is(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.state is not None and self.group.master_epoch == broker.epoch:
            broker.state = broker.state.adopt(self.group.in_sync, self.group.set_version)

    # What holds at every moment.

    @invariant()
    def one_master_acknowledges(self) -> None:
        able = [b for b in self.brokers.values() if b.may_acknowledge(self.true_ms)]
        assert len({broker.epoch for broker in able}) == len(able)
        if not self.waits_for_all:
            assert len(able) <= 1, "the lease of the old master is over"

    @invariant()
    def every_member_of_the_set_has_what_was_acknowledged(self) -> None:
        if self.waits_for_all:
            for member in self.group.in_sync:
                missing = self.acknowledged - set(self.brokers[member].log)
                assert not missing, f"{member} lacks {missing}"


SEEDS = 200
"""Histories within which every planted defect is found."""

HISTORIES = settings(max_examples=60, stateful_step_count=80)


def test_every_history_has_one_master_an_epoch_and_loses_nothing() -> None:
    run_state_machine_as_test(GroupHistory, settings=HISTORIES)


def long_history(seed: int, steps: int = 400) -> None:
    """A history of steps drawn from a seed, the usual ones more often than the rare ones."""
    rng = Random(seed)
    history = GroupHistory()
    rates = [rng.choice([0.9, 1.0, 1.1]) for _ in range(4)]
    history.begin(rates, waits_for_all=rng.random() < 0.5)

    def one() -> int:
        return rng.randint(1, 3)

    table: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: history.time_passes(rng.choice([1, 10, 100, 400, 1_000]))),
        (30, lambda: history.a_heartbeat_arrives(one())),
        (10, lambda: history.a_broker_counts_as_dead(one())),
        (10, history.the_controllers_wait_for_the_lease_ends),
        (10, lambda: history.a_dead_master_is_replaced(rng.choice([None, 1, 2, 3]))),
        (2, lambda: history.another_controller_leads(rng.randint(0, 10**6))),
        (15, lambda: history.run_election(ElectionRequest())),
        (2, lambda: history.run_election(ElectionRequest(asker=one(), designated=True))),
        (1, lambda: history.run_election(ElectionRequest(unclean=True))),
        (40, lambda: history.a_broker_learns_who_leads(one())),
        (2, lambda: history.a_broker_restarts(one())),
        (40, lambda: history.a_master_writes(one(), 1)),
        (90, lambda: history.a_replica_copies(one(), one(), rng.randint(0, 1))),
        (60, lambda: history.a_master_acknowledges(one())),
        (40, lambda: history.a_lease_is_renewed(one())),
        (40, lambda: history.the_set_is_changed(one(), one())),
        (10, lambda: history.a_master_asks_for_a_lease(one())),
        (30, lambda: history.a_master_proposes_a_change(one(), one())),
        (30, lambda: history.a_master_asks_what_its_set_is(one())),
    ]
    on_the_way: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: history.a_request_arrives(rng.randint(0, 9))),
        (30, lambda: history.an_answer_arrives(rng.randint(0, 9))),
        (5, lambda: history.a_message_is_lost(rng.randint(0, 9))),
    ]
    for _ in range(steps):
        rules = table + on_the_way if history.sent else table
        (step,) = rng.choices([step for _, step in rules], [weight for weight, _ in rules])
        step()
        history.one_master_acknowledges()
        history.every_member_of_the_set_has_what_was_acknowledged()


def long_histories() -> None:
    for seed in range(SEEDS):
        long_history(seed)


def test_long_histories_have_one_master_an_epoch_and_lose_nothing() -> None:
    long_histories()


DEFECTS: dict[str, tuple[object, str, object]] = {
    "elects another while the lease runs": (election, "may_replace_master", lambda *_: True),
    "forgets that clocks drift": (LeaseTerms, "wait_ms", property(lambda self: self.length_ms)),
    "leads without waiting for leases of before": (leases, "assumed_lease", lambda *_: None),
    "goes on for longer than its lease": (
        leases,
        "granted_term",
        lambda epoch, asked_ms, terms: MasterTerm(
            epoch=epoch, until_ms=asked_ms + 2 * terms.length_ms
        ),
    ),
    "shrinks its set before the controller agrees, as Apache's master": (
        SyncState,
        "propose",
        lambda self, members: SyncState(members=members, version=self.version),
    ),
    "waits for the new members only": (
        SyncState,
        "acknowledging",
        property(lambda self: self.proposed or self.members),
    ),
    "waits for the old members only": (
        SyncState,
        "acknowledging",
        property(lambda self: self.members),
    ),
}
"""What is wrong in each, and the function in whose place the wrong one stands."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[name])
    with pytest.raises(AssertionError, match=r"lease of the old master|lacks"):
        long_histories()
