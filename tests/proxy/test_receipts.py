"""Receipt handles as clients hold them, and their renewal."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from tests.proxy.conftest import User, consumer_settings

from roquet.proxy.caller import Caller
from roquet.proxy.clients import ClientTable
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy
from roquet.proxy.receipts import Receipt, ReceiptKey, ReceiptRenewals, decode_receipt
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster

# From vectors/grpc/statuses.jsonl.
RECORDED = "6 1795365656894 20000 7 0 broker-a 1 6 8582690"
TOO_LONG = RECORDED + "0" * 5_000


def test_a_recorded_handle_is_read_and_written() -> None:
    receipt = decode_receipt(RECORDED)
    assert receipt.position == 8_582_690
    assert (receipt.handle.broker, receipt.handle.queue_id, receipt.handle.offset) == (
        "broker-a", 1, 6,
    )  # fmt: skip
    assert receipt.text() == RECORDED


def test_a_brokers_own_handle_has_no_position() -> None:
    assert decode_receipt(RECORDED.rpartition(" ")[0]).position == -1


def test_a_broker_with_blanks_in_its_name_is_read() -> None:
    receipt = decode_receipt("6 1795365656894 20000 7 0 my broker 1 6 8582690")
    assert (receipt.handle.broker, receipt.position) == ("my broker", 8_582_690)


@pytest.mark.parametrize("text", ["", "a b", "garbage", RECORDED.replace(" 0 ", " 9 "), TOO_LONG])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ProxyRefusal) as caught:
        decode_receipt(text)
    assert caught.value.code is StatusCode.INVALID_RECEIPT_HANDLE


def test_a_message_is_held_until_its_invisible_time_is_over() -> None:
    receipt = decode_receipt(RECORDED)
    receipt.check_held(1_795_365_676_893)
    with pytest.raises(ProxyRefusal):
        receipt.check_held(1_795_365_676_894)


class SlowBroker:
    """Takes some time to change an invisible time, and notes the offsets."""

    def __init__(self) -> None:
        self.changed: list[int] = []
        self.pause_s = 1.0

    async def change(self, receipt: Receipt, _topic: str, _group: str, invisible: int) -> Receipt:
        self.changed.append(receipt.handle.offset)
        await asyncio.sleep(self.pause_s)
        handle = msgspec.structs.replace(
            receipt.handle, pop_ms=this_loop().clock.now_ms(), invisible_ms=invisible
        )
        return Receipt(handle, receipt.position)


class Renewed:
    """Receipts that are due for renewal at a slow broker."""

    def __init__(self, count: int, clock: Any = None) -> None:
        clock = clock or this_loop().clock
        self.broker, self.clients = SlowBroker(), ClientTable(clock)
        self.clients.update(Caller("c", "JAVA", "5.2.0", "", None), pb.Settings(), asyncio.Queue())
        self.renewals = ReceiptRenewals(
            cast(Any, self.broker), cast(Any, None), self.clients, clock
        )
        self.keys = []
        for offset in range(count):
            text = f"{offset} {clock.now_ms()} 1000 7 0 broker-a 1 {offset} 8582690"
            self.keys.append(ReceiptKey("c", "g", text))
            self.renewals.add(self.keys[-1], decode_receipt(text), "t", 0)


async def test_a_message_is_settled_by_the_handle_that_a_renewal_under_way_gives_it() -> None:
    renewed = Renewed(1)
    stepping = asyncio.create_task(renewed.renewals.step())
    await asyncio.sleep(0.5)
    async with renewed.renewals.settle(renewed.keys[0]) as receipt:
        assert receipt.handle.invisible_ms == 60_000
    await stepping


async def test_a_message_is_not_renewed_while_or_after_it_is_settled() -> None:
    renewed = Renewed(1)
    async with renewed.renewals.settle(renewed.keys[0]):
        stepping = asyncio.create_task(renewed.renewals.step())
        await asyncio.sleep(0.5)
    await stepping
    await renewed.renewals.step()
    assert renewed.broker.changed == []


async def test_a_message_is_renewed_further_when_it_could_not_be_settled() -> None:
    renewed = Renewed(1)
    with pytest.raises(ProxyRefusal):
        async with renewed.renewals.settle(renewed.keys[0]):
            raise ProxyRefusal(StatusCode.PROXY_TIMEOUT, "the broker does not answer")
    await renewed.renewals.step()
    assert renewed.broker.changed == [0]


async def test_renewals_do_not_wait_for_each_other() -> None:
    renewed, clock = Renewed(1_000), this_loop().clock
    began_ms = clock.now_ms()
    await renewed.renewals.step()
    assert len(renewed.broker.changed) == 1_000
    assert clock.now_ms() - began_ms < 2_000


async def test_a_receipt_that_was_added_after_its_client_left_is_released() -> None:
    renewed = Renewed(0)
    renewed.clients.remove("c")
    text = f"3 {this_loop().clock.now_ms()} 60000 7 0 broker-a 1 3 8582690"
    key = ReceiptKey("c", "g", text)
    renewed.renewals.add(key, decode_receipt(text), "t", 0)
    await renewed.renewals.step()
    assert renewed.broker.changed == [3]


async def test_a_stop_does_not_wait_long_for_a_broker() -> None:
    renewed, clock = Renewed(1), this_loop().clock
    renewed.broker.pause_s = 60
    began_ms = clock.now_ms()
    await renewed.renewals.close()
    assert clock.now_ms() - began_ms <= 5_000


class JumpingClock:
    """A clock whose time of day is set back now and then."""

    def __init__(self) -> None:
        self.behind_ms = 0

    def now_ms(self) -> int:
        return this_loop().clock.now_ms() - self.behind_ms

    def monotonic_ms(self) -> int:
        return this_loop().clock.monotonic_ms()


async def test_a_message_is_renewed_in_time_though_the_clock_is_set_back() -> None:
    clock = JumpingClock()
    renewed = Renewed(1, clock)
    clock.behind_ms = 600_000
    await renewed.renewals.step()
    assert renewed.broker.changed == [0]


async def test_a_message_that_is_acknowledged_at_another_proxy_does_not_come_again(
    running: Cluster, proxy: Proxy
) -> None:
    another = Proxy(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    another.start()
    before, after = User(proxy, "c"), User(another, "c")
    async with before.telemetry(consumer_settings()):
        await before.receive(timeout_s=6)
        await before.send("NORM", b"x")
        (message,) = await before.receive(auto_renew=True)
    async with after.telemetry(consumer_settings()):  # its connection was too old
        await asyncio.sleep(20)
        (answer,) = (await after.ack(message)).entries
        assert answer.status.code == pb.OK
        await asyncio.sleep(240)
    async with after.telemetry(consumer_settings()):
        assert await after.receive(timeout_s=6) == []
    await another.close()
