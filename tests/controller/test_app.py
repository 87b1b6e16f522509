"""A controller and brokers: groups begin, masters are lost and replaced, frames are Apache's."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.controller.conftest import (
    CONFIG,
    LEASE_MS,
    WAIT_MS,
    Broker,
    Trio,
    broker,
    controller,
    open_trio,
    sleep_ms,
    stored,
)
from tests.metrics.prometheus_text import parsed
from tests.raising import raises

from roquet.access.translation import encode_document
from roquet.controller.app import (
    ControllerServer,
    advertised_address,
    open_store,
    warn_of_open_controller,
)
from roquet.controller.config import ControllerConfig
from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.file import FileStore
from roquet.controller.state_store.interface import StoredGroup
from roquet.controller.state_store.memory import MemoryStore
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.access import AccessTables, User, UserType
from roquet.model.errors import CallRefused, ConfigError
from roquet.net.channel import Channel, Security
from roquet.net.tls import ServerTls, Tls
from roquet.observe.page_client import read_page
from roquet.testing.clock import this_loop
from roquet.wire.calls import controller as calls
from roquet.wire.codes import ResponseCode
from roquet.wire.command import decode
from roquet.wire.fastjson import codec
from roquet.wire.frame import FrameReader
from roquet.wire.signing import Credentials, Signer

pytestmark = pytest.mark.virtual_time

CERTIFICATES = Path(__file__).parents[1] / "certificates"
FRAMES = Path(__file__).parents[1] / "vectors" / "replication" / "controller-frames.jsonl"
CAPTURED: list[dict[str, Any]] = [json.loads(line) for line in FRAMES.read_text().splitlines()]


def captured(code: int, kind: str, number: int = 0) -> dict[str, Any]:
    return [line for line in CAPTURED if (line["code"], line["kind"]) == (code, kind)][number]


async def answered(stream: str) -> Any:
    """The answer to a genuine frame: its command."""
    reader, writer = await asyncio.open_connection("127.0.0.1", CONFIG.port)
    writer.write(bytes.fromhex(stream))
    frames: list[bytes] = []
    frame_reader = FrameReader()
    while not frames:
        frames += frame_reader.feed(await reader.read(4096))
    writer.close()
    return decode(frames[0])


async def check_answer(code: int, request: int = 0, response: int = 0) -> None:
    command = await answered(captured(code, "req", request)["hex"])
    wanted = captured(code, "resp", response)
    assert command.code == wanted["result"]
    assert command.ext == (wanted["ext"] or {})
    assert command.body.decode() == wanted["body"]


async def test_genuine_requests_get_the_answers_of_apaches_controller() -> None:
    settings = {"controllers": "g1", "controller_id": "n0", "advertise": "127.0.0.1:21878"}
    async with controller(None, **settings) as server, broker(2) as two:
        for code in (1005, 1012, 1013, 1003, 1002, 1004):
            await check_answer(code)
        async with broker(1, address="127.0.0.1:21941") as one:
            await one.beat()
            await check_answer(1003, 0, 1)
            await two.join()
            group = stored(server)
            assert group.replicas[1].address == "127.0.0.1:21941"
            await check_answer(1001)
            command = await answered(captured(1006, "req")["hex"])
            text = captured(1006, "resp")["body"].replace("127.0.0.1:21951", two.address)
            assert command.body.decode() == text


async def test_a_heartbeat_is_answered_in_apaches_words_without_a_lease(
    server: ControllerServer, one: Broker
) -> None:
    reply = await one.beat()
    assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, "Heart beat success")
    assert reply.lease_millis is None


async def test_the_first_broker_leads_and_the_second_learns_it() -> None:
    async with controller(), broker(1) as one, broker(2) as two:
        await one.apply()
        assert (await one.register()).master_broker_id is None
        await one.beat()
        reply = await one.elect()
        assert (reply.master_broker_id, reply.master_epoch, reply.sync_state_set_epoch) == (1, 1, 1)
        await two.apply()
        assert (await two.register()).master_address == one.address
        info = await two.replica_info()
        assert (info.master_broker_id, info.master_epoch) == (1, 1)


async def test_a_master_whose_connection_ends_is_replaced_at_once(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await sleep_ms(5_000)
    await two.beat(epoch=1, max_offset=100)
    await three.beat(epoch=1, max_offset=200)
    await one.channel.close()
    await sleep_ms(100)
    group = stored(server)
    assert (group.master, group.master_epoch, group.in_sync) == (3, 2, frozenset({3}))
    for told in (two, three):
        notice = told.notices[-1]
        assert (notice.master_broker_id, notice.master_epoch) == (3, 2)
        assert notice.master_address == three.address
        body = codec.loads(notice.body, calls.SyncStateSet)
        assert (body.sync_state_set, body.sync_state_set_epoch) == ([3], 3)
    assert len(one.notices) == 1, "of its own election: now it is not alive"


async def test_a_silent_master_is_replaced_when_its_time_is_over(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, _ = trio
    await one.beat(heartbeat_timeout_mills=3_000)
    await sleep_ms(2_900)
    await two.beat(max_offset=7)
    assert stored(server).master == 1
    await sleep_ms(300)
    assert stored(server).master == 2


async def test_a_master_with_a_lease_is_replaced_only_when_it_has_certainly_stopped(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    reply = await one.beat(lease_epoch=1, waits_for_all=False)
    assert reply.lease_millis == LEASE_MS
    granted_ms = this_loop().clock.monotonic_ms()
    await one.channel.close()
    while stored(server).master == 1:
        await two.beat(epoch=1, max_offset=100)
        await three.beat(epoch=1, max_offset=200)
        await sleep_ms(50)
        assert this_loop().clock.monotonic_ms() - granted_ms < 3_000
    assert this_loop().clock.monotonic_ms() - granted_ms >= WAIT_MS
    assert stored(server).master == 3


async def test_where_the_whole_set_is_waited_for_a_member_leads_before_the_lease_ends(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, _ = trio
    await sleep_ms(5_000)
    await one.beat(lease_epoch=1, waits_for_all=True)
    await two.beat(epoch=1, max_offset=9)
    await one.channel.close()
    await sleep_ms(100)
    assert stored(server).master == 2


async def test_heartbeats_from_before_the_end_of_the_lease_decide_no_election(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await two.beat(epoch=1, max_offset=100)
    await three.beat(epoch=1, max_offset=50)
    await one.beat(lease_epoch=1, waits_for_all=False)
    await one.channel.close()
    await sleep_ms(2_000)
    assert stored(server).master == 1, "3 may have got more since"
    await two.beat(epoch=1, max_offset=100)
    await three.beat(epoch=1, max_offset=150)
    await sleep_ms(300)
    assert stored(server).master == 3


async def test_a_lease_is_refused_to_everybody_but_the_master_of_the_epoch(trio: Trio) -> None:
    one, two, _ = trio
    for sender, epoch, code in ((two, 1, 2002), (one, 2, 2000)):
        with raises(CallRefused, code=code):
            await sender.beat(lease_epoch=epoch)


async def test_a_designated_broker_leads_once_the_masters_lease_is_over(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await sleep_ms(5_000)
    await one.beat(lease_epoch=1)
    began_ms = this_loop().clock.monotonic_ms()
    electing = asyncio.create_task(two.designate(2))
    await sleep_ms(WAIT_MS + 100)
    assert not electing.done(), "nobody has said since what it has"
    for sender in (one, two, three):
        await sender.beat()
    reply = await electing
    assert this_loop().clock.monotonic_ms() - began_ms >= WAIT_MS
    assert (reply.master_broker_id, stored(server).master) == (2, 2)


async def test_a_lease_is_not_prolonged_while_a_designated_broker_waits_for_its_end(
    trio: Trio,
) -> None:
    one, two, three = trio
    await sleep_ms(5_000)
    await one.beat(lease_epoch=1)
    waiting = asyncio.create_task(two.designate(2))
    await sleep_ms(500)
    with pytest.raises(CallRefused, match="another broker is to be elected"):
        await one.beat(lease_epoch=1)
    await sleep_ms(WAIT_MS)
    for sender in (one, two, three):
        await sender.beat()
    assert (await waiting).master_broker_id == 2


async def test_a_designated_broker_that_does_not_catch_up_leaves_the_master_its_lease(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await sleep_ms(5_000)
    await one.beat(lease_epoch=1, logs_needed=2)
    waiting = asyncio.create_task(two.designate(2))
    await sleep_ms(WAIT_MS)
    for sender, end in ((one, 900), (two, 800), (three, 900)):
        await sender.beat(epoch=1, max_offset=end)
    with pytest.raises(CallRefused, match="broker 2 lacks messages that broker 1 has"):
        await waiting
    await one.beat(epoch=1, max_offset=900, lease_epoch=1, logs_needed=2)
    assert stored(server).master == 1


async def test_a_designated_broker_is_not_elected_while_too_few_others_are_heard_of(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await one.beat(lease_epoch=1, logs_needed=2)
    for sender in (one, three):
        await sender.channel.close()
    waiting = asyncio.create_task(two.designate(2))
    await sleep_ms(WAIT_MS)
    await two.beat()
    with pytest.raises(CallRefused, match="1 more of the set"):
        await waiting
    assert stored(server).master == 1
    reply = await two.designate(2, unclean=True)
    assert (reply.master_broker_id, stored(server).master) == (2, 2)


async def test_a_restarted_master_with_less_than_others_is_replaced(
    server: ControllerServer, trio: Trio
) -> None:
    one, two, three = trio
    await one.beat(epoch=1, max_offset=500, lease_epoch=1, waits_for_all=True)
    await two.beat(epoch=1, max_offset=500)
    await three.beat(epoch=1, max_offset=400)
    await one.beat(epoch=1, max_offset=300, releases_lease=True)
    reply = await one.elect()
    assert reply.code == ResponseCode.SUCCESS
    assert (reply.master_broker_id, stored(server).master_epoch) == (2, 2)


async def test_a_master_that_is_alive_stays_and_says_so(trio: Trio) -> None:
    _, two, _ = trio
    reply = await two.elect()
    assert reply.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert (reply.master_broker_id, reply.master_epoch) == (1, 1)


async def test_a_group_whose_state_was_lost_elects_nobody_until_it_is_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controller() as server, broker(4) as old, broker(1) as new:
        await old.beat(epoch=5)
        with pytest.raises(CallRefused, match="older than its brokers"):
            await new.channel.call(calls.GetNextBrokerId(cluster_name="C", broker_name="bc"))
        await new.join()
        with pytest.raises(CallRefused, match="epoch 5, the controller's state in epoch 0"):
            await new.elect()
        await sleep_ms(CONFIG.scan_ms * 3)
        lines = [line for line in caplog.messages if "nobody is elected" in line]
        assert len(lines) == 1, "one clear line"
        await old.beat(epoch=5)
        await new.beat()
        clean = calls.CleanBrokerData(
            cluster_name="C", broker_name="bc", is_clean_living_broker=True
        )
        await new.channel.call(clean)
        with raises(CallRefused, code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST):
            await new.replica_info()
        await old.apply()
        await old.elect()
        assert stored(server).master_epoch == 6, "epochs go on"


async def test_an_old_copy_of_the_state_is_not_changed_in_a_further_epoch() -> None:
    """It would look like the latest state then, and one of its set would be elected."""
    async with controller() as server, open_trio() as (one, two, three):
        assert await one.alter(1, 2, 1, 2) == {1, 2}
        await three.beat(epoch=1, obeyed_epoch=2)
        clean = calls.CleanBrokerData(
            cluster_name="C", broker_name="bc", broker_controller_ids_to_clean="1",
            is_clean_living_broker=True,
        )  # fmt: skip
        with pytest.raises(CallRefused, match="older than its brokers"):
            await two.channel.call(clean)
        await one.channel.close()
        await sleep_ms(100)
        moved = calls.RegisterWithController(
            cluster_name="C", broker_name="bc", broker_id=1, broker_address="elsewhere:1"
        )
        with pytest.raises(CallRefused, match="older than its brokers"):
            await two.channel.call(moved)
        assert (stored(server).master, stored(server).master_epoch) == (1, 1)


class LosingStore(MemoryStore):
    """A store that can lose what was written to it."""

    has_lost = False

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        loaded = await super().load(term)
        return {} if self.has_lost else loaded


async def test_a_store_that_lost_a_known_group_does_not_begin_it_again() -> None:
    store = LosingStore()
    async with controller(store) as server, broker(1) as one, broker(2) as two:
        await one.lead()
        store.has_lost = True
        server.controller.leadership.leader_state().end("for the test")
        await sleep_ms(1_500)
        await two.beat()
        with raises(CallRefused, code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED):
            await two.elect()
        assert server.controller.elections.epoch_known("bc") == 1


async def test_a_stopped_controller_can_be_started_again_on_its_port() -> None:
    for _ in range(2):
        async with controller():
            channel = await Channel.connect("127.0.0.1", CONFIG.port, clock=this_loop().clock)
            reply = await channel.call(calls.GetControllerMetadata())
            assert reply.is_leader
            assert reply.controller_leader_address == "127.0.0.1:9878"
            await channel.close()


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"advertise": "h:1"}, "h:1"),
        ({"advertise": "h"}, "h:77"),
        ({"host": "10.0.0.1"}, "10.0.0.1:77"),
    ],
)
def test_brokers_are_told_an_address_of_this_machine(
    settings: dict[str, str], address: str
) -> None:
    assert advertised_address(ControllerConfig(**settings), 77) == address  # type: ignore[arg-type]


@pytest.mark.virtual_time(False)
async def test_a_port_in_use_is_named() -> None:
    config = ControllerConfig(host="127.0.0.1", port=0)
    async with ControllerServer(config) as first:
        with pytest.raises(ConfigError, match=f"port {first.port} is in use"):
            async with ControllerServer(ControllerConfig(host="127.0.0.1", port=first.port)):
                pass


async def test_a_controller_with_users_checks_every_request(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    users = {
        "inner": User(name="inner", password="innersecret", user_type=UserType.SUPER),
        "alice": User(name="alice", password="alicesecret"),
    }
    path.write_bytes(encode_document(AccessTables(users=users)))
    inner = Signer(Credentials(access_key="inner", secret_key="innersecret"))
    alice = Signer(Credentials(access_key="alice", secret_key="alicesecret"))
    apply = calls.ApplyBrokerId(
        cluster_name="C", broker_name="b", applied_broker_id=1, register_check_code="a;1"
    )
    async with controller(access_file=path) as server:
        for signer, reason in ((None, "username cannot be null."), (alice, "no matched policies.")):
            channel = await Channel.connect(
                "127.0.0.1", server.port, security=Security(signer=signer)
            )
            for call in (apply, calls.GetControllerMetadata()):
                with raises(CallRefused, code=ResponseCode.NO_PERMISSION, match=reason):
                    await channel.call(call)
            await channel.close()
        channel = await Channel.connect("127.0.0.1", server.port, security=Security(signer=inner))
        await channel.call(apply)
        await channel.close()


@pytest.mark.virtual_time(False)
async def test_a_certificate_names_the_user_of_unsigned_requests(tmp_path: Path) -> None:
    path, ca = tmp_path / "access.json", CERTIFICATES / "ca.pem"
    client = User(name="client", password="x", user_type=UserType.SUPER)
    path.write_bytes(encode_document(AccessTables(users={"client": client})))
    tls = ServerTls(cert=CERTIFICATES / "server.pem", key=CERTIFICATES / "server.key", client_ca=ca)
    config = ControllerConfig(
        host="127.0.0.1", port=0, access_file=path, tls=tls, certificate_users=True
    )
    pair: dict[str, Any] = {"cert": CERTIFICATES / "client.pem", "key": CERTIFICATES / "client.key"}
    security = Security(context=Tls(ca=ca, **pair).context())
    async with ControllerServer(config) as server:
        address = ("127.0.0.1", server.port)
        async with await Channel.connect(*address, security=security) as channel:
            assert (await channel.call(calls.GetControllerMetadata())).controller_leader_id


def test_users_of_certificates_need_an_authority(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--certificate-users needs --tls-client-ca"):
        ControllerConfig(access_file=tmp_path / "access.json", certificate_users=True)


def test_one_line_warns_of_an_open_controller(caplog: pytest.LogCaptureFixture) -> None:
    tls = ServerTls(cert=Path("c.pem"), key=Path("k.pem"))
    for config in (
        ControllerConfig(host="127.0.0.1"),
        ControllerConfig(access_file=Path("access.json")),
        ControllerConfig(tls=msgspec.structs.replace(tls, client_ca=Path("ca.pem"))),
    ):
        warn_of_open_controller(config, "10.0.0.5:9878")
    assert caplog.messages == []
    for config in (ControllerConfig(), ControllerConfig(tls=tls)):
        warn_of_open_controller(config, "10.0.0.5:9878")
    assert len(caplog.messages) == 2
    assert "everybody who reaches 10.0.0.5:9878 may have other brokers lead" in caplog.text
    assert "set --access-file, or --host to one interface" in caplog.text


async def test_a_controller_shows_whether_it_leads() -> None:
    config = ControllerConfig(
        host="127.0.0.1", port=0, metrics_exporter=MetricsExporterType.PROM, metrics_port=0
    )
    async with ControllerServer(config) as server:
        page = parsed(
            await read_page(f"127.0.0.1:{server.metrics_port}", "/metrics", timeout_ms=5_000)
        )
        assert page.one("roquet_controller_is_leader", node_id=server.address) == 1
    assert page.one("roquet_brokers", node_type="controller") == 0


async def test_a_controller_shows_nothing_unless_it_is_told_to() -> None:
    async with ControllerServer(ControllerConfig(host="127.0.0.1", port=0)) as server:
        assert server.metrics_port == 0


async def test_each_kind_of_store_has_a_name(tmp_path: Path) -> None:
    for text, kind in (
        ("memory", MemoryStore),
        (f"file:{tmp_path}", FileStore),
        ("etcd:h:1,[::1]:2", EtcdStore),
        ("etcd+https:h:1", EtcdStore),
    ):
        store = open_store(ControllerConfig(store=text))
        assert type(store) is kind
        await store.close()


@pytest.mark.parametrize(
    "text", ["", "file", "file:", "etcd", "etcd:", "etcd:h", "etcd+https:h", "zookeeper:h:1"]
)
def test_any_other_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="store: "):
        open_store(ControllerConfig(store=text))


def test_tls_of_etcd_needs_a_store_that_is_called_by_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not called by TLS: write etcd.https:HOST:PORT"):
        ControllerConfig(store="etcd:h:1", etcd_tls=Tls())
    with pytest.raises(ConfigError, match=r"tls.ca: .* cannot be used"):
        open_store(ControllerConfig(store="etcd+https:h:1", etcd_tls=Tls(ca=tmp_path / "no.pem")))


@pytest.mark.parametrize("group", ["", "a/b", "a\n"])
def test_a_name_of_controllers_that_is_no_part_of_a_key_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a part of etcd's keys"):
        open_store(ControllerConfig(store="etcd:h:1", controllers=group))
