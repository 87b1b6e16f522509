"""Two controllers, one etcd and three brokers through losses, drawn from a seed.

Controllers lose etcd, its leases and the answers to their writes; connections of brokers end, and
masters learn late that they are none any more. At every moment one broker at most may acknowledge,
epochs of the stored state only grow, and there is one master in each epoch.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random

import msgspec
import pytest
from msgspec.structs import replace
from tests.controller.conftest import LEASE_MS, Broker, broker, controller, sleep_ms
from tests.controller.state_store.fake_etcd import FakeEtcd, etcd_store

from roquet.controller.app import ControllerServer
from roquet.controller.leader_state import LeaderState
from roquet.model.errors import CallError
from roquet.rules.election.group import ReplicaGroup
from roquet.rules.election.lease import LeaseTerms, MasterLease, MasterTerm, granted_term
from roquet.testing import clock as virtual
from roquet.testing.clock import this_loop

KEY = "/roquet/g1/groups/bc"
PORTS = (9878, 9879)
STEPS = 120
SEEDS = range(20)
TERMS = LeaseTerms(length_ms=LEASE_MS)


class History:
    """One run: the brokers' terms, and what was ever stored."""

    def __init__(self, seed: int, stack: AsyncExitStack) -> None:
        self.rng = Random(seed)
        self.etcd = FakeEtcd()
        self.stack = stack
        self.controllers: list[ControllerServer] = []
        self.brokers: dict[tuple[int, int], Broker] = {}
        """Connections by broker id and port of the controller."""
        self.terms: dict[int, MasterTerm] = {}
        self.leads_in: dict[int, int] = {}
        """Epochs in which brokers believe to lead."""
        self.masters: dict[int, int] = {}
        self.epoch = 0

    async def begin(self) -> None:
        for port in PORTS:
            server = controller(etcd_store(self.etcd), port=port)
            self.controllers.append(await self.stack.enter_async_context(server))
        for broker_id in (1, 2, 3):
            await self.connect(broker_id)
            await self.brokers[broker_id, PORTS[0]].apply()
            await self.beat(broker_id)
        await self.brokers[1, PORTS[0]].elect()
        await self.brokers[1, PORTS[0]].alter(1, 1, 1, 2, 3)

    async def connect(self, broker_id: int) -> None:
        for port in PORTS:
            again = broker(broker_id, port=port, address=f"h:{broker_id}")
            opened = await self.stack.enter_async_context(again)
            self.brokers[broker_id, port] = opened

    def group(self) -> ReplicaGroup | None:
        """The group as etcd has it."""
        pair = self.etcd.keys.get(KEY)
        value = b64decode(pair["value"]) if pair else None
        return msgspec.json.decode(value, type=ReplicaGroup) if value else None

    def check(self) -> None:
        now_ms = this_loop().clock.monotonic_ms()
        able = [n for n, term in self.terms.items() if term.may_acknowledge(term.epoch, now_ms)]
        assert len(able) <= 1, f"{able} acknowledge at {now_ms} ms"
        group = self.group()
        if group is None:
            return
        assert group.master_epoch >= self.epoch, "epochs only grow"
        self.epoch = group.master_epoch
        if group.master is not None:
            known = self.masters.setdefault(group.master_epoch, group.master)
            assert known == group.master, "one master in each epoch"

    async def beat(self, broker_id: int) -> None:
        """Send heartbeats to both controllers; a master asks both for its lease."""
        if self.rng.random() < 0.5:
            self.learn(broker_id)
        epoch = self.leads_in.get(broker_id)
        fields = {} if epoch is None else {"lease_epoch": epoch, "waits_for_all": False}
        for port in PORTS:
            asked_ms = this_loop().clock.monotonic_ms()
            try:
                reply = await self.brokers[broker_id, port].beat(
                    epoch=min(1, self.epoch), heartbeat_timeout_mills=1_500, **fields
                )
            except CallError:
                continue
            if epoch is not None and reply.lease_millis is not None:
                self.terms[broker_id] = granted_term(epoch, asked_ms, TERMS)
                self.check()

    def learn(self, broker_id: int) -> None:
        """A broker learns whether it leads."""
        group = self.group()
        if group is not None and group.master == broker_id:
            self.leads_in[broker_id] = group.master_epoch
        else:
            self.leads_in.pop(broker_id, None)
            self.terms.pop(broker_id, None)

    async def step(self) -> None:
        """Do one thing at random."""
        rng = self.rng
        steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (60, lambda: self.beat(rng.randint(1, 3))),
            (8, lambda: self.die(rng.randint(1, 3))),
            (10, self.etcd_fails),
            (6, lambda: self.ask(rng.randint(1, 3), rng.choice(PORTS))),
            (6, self.grow),
            (10, lambda: sleep_ms(rng.choice([50, 300, 1_200]))),
        ]
        (step,) = rng.choices([one for _, one in steps], [weight for weight, _ in steps])
        await step()
        if rng.random() < 0.2:
            self.etcd.is_away = False
        await sleep_ms(rng.randint(1, 120))

    async def etcd_fails(self) -> None:
        match self.rng.randrange(6):
            case 0 | 1 | 2:
                self.etcd.expire_all()
            case 3:
                self.etcd.forgets_answer = True
            case _:
                self.etcd.is_away = True

    async def die(self, broker_id: int) -> None:
        """End a broker's connections for a while: it goes on to acknowledge within its term."""
        for port in PORTS:
            await self.brokers[broker_id, port].channel.close()
        await sleep_ms(self.rng.randint(1, 2_000))
        await self.connect(broker_id)

    async def ask(self, broker_id: int, port: int) -> None:
        try:
            await self.brokers[broker_id, port].elect()
        except CallError:
            return

    async def grow(self) -> None:
        """The master asks for a set of everybody."""
        group = self.group()
        if group is None or group.master is None:
            return
        for port in PORTS:
            try:
                asker = self.brokers[group.master, port]
                await asker.alter(group.master_epoch, group.set_version, 1, 2, 3)
            except CallError:
                continue


async def history(seed: int) -> History:
    async with AsyncExitStack() as stack:
        one = History(seed, stack)
        await one.begin()
        for _ in range(STEPS):
            await one.step()
            one.check()
        one.etcd.is_away = False
        return one


def play(seed: int) -> History:
    return virtual.run(history(seed), seed=seed)


def play_all() -> None:
    for seed in SEEDS:
        play(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_broker_acknowledges_and_epochs_grow(seed: int) -> None:
    played = play(seed)
    assert played.epoch > 1, "there was something to decide"


async def unconfirmed(state: LeaderState, name: str, request: object) -> MasterLease:
    """Grant a lease without a look at the store, to anybody who led once."""
    now_ms = this_loop().clock.monotonic_ms()
    return MasterLease(holder=1, address="h:1", until_ms=now_ms + TERMS.wait_ms)


def test_leases_without_the_stores_word_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderState, "grant", unconfirmed)
    with pytest.raises(AssertionError, match="acknowledge at"):
        play_all()


def test_elections_while_a_lease_runs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.rules.election.elect.may_replace_master", lambda *_: True)
    monkeypatch.setattr(
        LeaderState, "lease", lambda *_: replace(MasterLease(holder=None, until_ms=0))
    )
    with pytest.raises(AssertionError, match="acknowledge at"):
        play_all()
