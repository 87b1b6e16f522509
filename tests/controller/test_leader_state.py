"""Decisions in one term: stored before they count, one after the other, fenced by the store."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.rules.election.conftest import group_of, led

from roquet.controller.leader_state import LeaderState, SharedRun
from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    StateStoreError,
    StoredGroup,
)
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import CallRefused
from roquet.rules.election.group import Refusal, RefusalCode, ReplicaGroup
from roquet.rules.election.lease import LeaseRequest, LeaseTerms
from roquet.testing.clock import this_loop
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

GROUP = led(group_of(1, 2, 3), 1, 4, 1, 2)
ASKED = LeaseRequest(broker_id=1, address="h:1", epoch=4)
TERMS = LeaseTerms(length_ms=1_000, drift_per_mille=0)


class SlowStore(MemoryStore):
    """A store whose operations take 100 ms, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StateStoreError | None = None
        self.confirmed = 0

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        await this_loop().clock.sleep(100)
        if self.error is not None:
            raise self.error
        return await super().save(term, name, group, revision)

    async def confirm(self, term: int) -> None:
        await this_loop().clock.sleep(100)
        self.confirmed += 1
        if self.error is not None:
            raise self.error
        await super().confirm(term)


async def led_state(store: SlowStore) -> LeaderState:
    """The state of a leader with one group, 1 ms after any assumed lease has ended."""
    await store.acquire(ControllerIdentity("n0", "h:1"))
    revision = await store.save(1, "bc", GROUP, 0)
    groups = {"bc": StoredGroup(GROUP, revision)}
    state = LeaderState(store, 1, groups, this_loop().clock, TERMS)
    await this_loop().clock.sleep(TERMS.wait_ms + 1)
    return state


def next_epoch(group: ReplicaGroup | None) -> ReplicaGroup:
    assert group is not None
    return replace(group, master_epoch=group.master_epoch + 1)


def code_of(refused: "pytest.ExceptionInfo[CallRefused]") -> int:
    return refused.value.code


async def test_decisions_about_a_group_follow_one_another() -> None:
    state = await led_state(SlowStore())
    await asyncio.gather(*(state.update("bc", next_epoch) for _ in range(5)))
    group = state.group("bc")
    assert group is not None
    assert group.master_epoch == 9


async def test_a_decision_is_finished_although_its_asker_goes() -> None:
    state = await led_state(SlowStore())
    asking = asyncio.create_task(state.update("bc", next_epoch))
    await this_loop().clock.sleep(50)
    asking.cancel()
    await this_loop().clock.sleep(100)
    group = state.group("bc")
    assert group is not None
    assert group.master_epoch == 5


async def test_a_refusal_of_the_rules_is_the_answer() -> None:
    state = await led_state(SlowStore())
    with pytest.raises(CallRefused, match="no such thing") as refused:
        await state.update("bc", lambda _: Refusal(RefusalCode.INVALID_MASTER, "no such thing"))
    assert code_of(refused) == 2002


async def test_a_write_of_unknown_result_ends_the_term_and_is_no_refusal() -> None:
    store = SlowStore()
    state = await led_state(store)
    ends: list[str] = []
    state.on_end = ends.append
    store.error = StateStoreError("no answer", definite=False)
    with pytest.raises(CallRefused, match="not known whether the state was changed") as refused:
        await state.update("bc", next_epoch)
    assert code_of(refused) == ResponseCode.SYSTEM_ERROR
    assert not refused.value.definite
    assert ends == ["no answer"]
    store.error = None
    with pytest.raises(CallRefused) as refused:
        await state.update("bc", next_epoch)
    assert code_of(refused) == ResponseCode.CONTROLLER_NOT_LEADER
    with pytest.raises(CallRefused):
        await state.grant("bc", ASKED)


async def test_a_store_that_is_away_changes_nothing_and_the_term_goes_on() -> None:
    store = SlowStore()
    state = await led_state(store)
    store.error = StateStoreError("etcd is away", definite=True)
    with pytest.raises(CallRefused, match="not in leader state: etcd is away"):
        await state.update("bc", next_epoch)
    with pytest.raises(CallRefused, match="etcd is away"):
        await state.grant("bc", ASKED)
    store.error = None
    await state.update("bc", next_epoch)


async def test_another_leader_ends_the_term() -> None:
    store = SlowStore()
    state = await led_state(store)
    store.error = LeadershipLost("another controller leads")
    with pytest.raises(CallRefused, match=r"^code 2007: The controller is not in leader state$"):
        await state.update("bc", next_epoch)
    assert state.has_ended


async def test_a_lease_is_granted_after_the_store_has_confirmed_the_leadership() -> None:
    store = SlowStore()
    state = await led_state(store)
    await state.grant("bc", ASKED)  # also stores how long leases are
    asked_ms = this_loop().clock.monotonic_ms()
    lease = await state.grant("bc", ASKED)
    assert lease.holder == 1
    assert lease.until_ms == asked_ms + 100 + TERMS.wait_ms
    assert state.lease("bc") == lease


async def test_one_confirmation_serves_all_that_asked_before_it_began() -> None:
    store = SlowStore()
    state = await led_state(store)
    first = asyncio.create_task(state.grant("bc", ASKED))
    await this_loop().clock.sleep(10)
    await asyncio.gather(*(state.grant("bc", ASKED) for _ in range(50)))
    await first
    assert store.confirmed == 2


async def test_a_lease_is_not_granted_to_a_master_that_is_being_replaced() -> None:
    state = await led_state(SlowStore())
    replacing = asyncio.create_task(
        state.update("bc", lambda group: led(group_of(1, 2, 3), 2, 5, 2))
    )
    await this_loop().clock.sleep(1)
    with pytest.raises(CallRefused) as refused:
        await state.grant("bc", ASKED)
    assert code_of(refused) == ResponseCode.CONTROLLER_INVALID_MASTER
    await replacing


async def test_an_unknown_group_has_no_lease() -> None:
    state = await led_state(SlowStore())
    with pytest.raises(CallRefused) as refused:
        await state.grant("nope", ASKED)
    assert code_of(refused) == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    assert state.lease("nope") is None


async def test_a_term_that_ends_during_a_confirmation_grants_nothing() -> None:
    state = await led_state(SlowStore())
    asking = asyncio.create_task(state.grant("bc", ASKED))
    await this_loop().clock.sleep(50)
    state.end("for the test")
    with pytest.raises(CallRefused) as refused:
        await asking
    assert code_of(refused) == ResponseCode.CONTROLLER_NOT_LEADER


async def test_a_term_that_ends_while_a_grant_waits_for_its_turn_grants_nothing() -> None:
    state = await led_state(SlowStore())
    async with state.lock("bc"):
        asking = asyncio.create_task(state.grant("bc", ASKED))
        await this_loop().clock.sleep(150)
        state.end("for the test")
    with pytest.raises(CallRefused):
        await asking


async def test_a_new_leader_assumes_a_lease_that_it_did_not_grant() -> None:
    store = SlowStore()
    groups = {"bc": StoredGroup(GROUP, 1)}
    state = LeaderState(store, 1, groups, this_loop().clock, TERMS)
    lease = state.lease("bc")
    assert lease is not None
    assert (lease.holder, lease.until_ms) == (None, TERMS.wait_ms)


async def test_a_leader_with_a_shorter_lease_waits_for_the_longer_ones_of_the_one_before() -> None:
    store = SlowStore()
    state = await led_state(store)
    await state.grant("bc", ASKED)
    shorter = replace(TERMS, length_ms=400)
    clock = this_loop().clock
    for groups in (await store.load(1), {"bc": StoredGroup(GROUP, 1)}):
        lease = LeaderState(store, 1, groups, clock, shorter).lease("bc")
        assert lease is not None
        is_known = groups["bc"].group.lease_ms == TERMS.length_ms
        expected = TERMS if is_known else shorter
        assert lease.until_ms == clock.monotonic_ms() + expected.wait_ms
    assert (await store.load(1))["bc"].group.lease_ms == TERMS.length_ms


async def test_a_lease_whose_length_cannot_be_stored_is_not_granted() -> None:
    store = SlowStore()
    state = await led_state(store)
    before = state.lease("bc")
    asking = asyncio.create_task(state.grant("bc", ASKED))
    await this_loop().clock.sleep(150)
    store.error = StateStoreError("etcd is away", definite=True)
    with pytest.raises(CallRefused, match="etcd is away"):
        await asking
    assert state.lease("bc") == before


async def test_a_released_lease_is_over_and_its_holder_has_restarted() -> None:
    state = await led_state(SlowStore())
    await state.grant("bc", ASKED)
    state.release("bc", 1, "h:1")
    lease = state.lease("bc")
    assert lease is not None
    assert lease.until_ms == this_loop().clock.monotonic_ms()
    assert state.has_restarted("bc", 1)
    with pytest.raises(CallRefused, match="was started again: it has to be elected") as refused:
        await state.grant("bc", ASKED)
    assert code_of(refused) == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    await state.update("bc", next_epoch)
    await state.grant("bc", replace(ASKED, epoch=5))
    assert not state.has_restarted("bc", 1)
    state.release("bc", 9, "h:9")
    state.release("nope", 1, "h:1")
    assert not state.has_restarted("bc", 9), "unknown brokers cost nothing"


async def test_a_withheld_lease_is_not_prolonged() -> None:
    state = await led_state(SlowStore())
    state.withhold("bc", this_loop().clock.monotonic_ms() + 1_000)
    with pytest.raises(CallRefused, match="as soon as the lease is over"):
        await state.grant("bc", ASKED)
    await this_loop().clock.sleep(1_000)
    await state.grant("bc", ASKED)


async def test_an_error_of_a_shared_run_reaches_everybody_and_the_next_run_is_new() -> None:
    runs: list[int] = []

    async def run() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise LeadershipLost("once")

    shared = SharedRun(run)
    results = await asyncio.gather(shared.join(), shared.join(), return_exceptions=True)
    assert [type(result) for result in results] == [LeadershipLost, LeadershipLost]
    await shared.join()
    assert len(runs) == 2


async def test_names_are_all_groups() -> None:
    assert (await led_state(SlowStore())).names == ["bc"]


async def test_how_many_logs_a_master_waits_for_is_stored_before_its_lease_is_granted() -> None:
    store = SlowStore()
    state = await led_state(store)
    await state.grant("bc", replace(ASKED, logs_needed=2))
    assert (await store.load(1))["bc"].group.logs_needed == 2
    for confirmed, needed in ((800, 2), (899, 2), (900, None)):
        request = replace(ASKED, waits_for_all=True, end=confirmed + 100, confirmed=confirmed)
        await state.grant("bc", request)
        group = state.group("bc")
        assert group is not None
        assert group.logs_needed == needed
