from pathlib import Path

from tests.broker.conftest import LocalBroker, local

from roquet.broker.app import BrokerServer
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.settings.config import BrokerConfig
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription


async def test_progress_beyond_the_end_is_not_noted(broker: LocalBroker) -> None:
    broker.send(b"x")
    assert [
        broker.make(BrokerProgress).commit("g", "orders", 0, offset) for offset in (1, 2, 1, 0)
    ] == [True, False, True, True]
    assert broker.tables.offsets.get("g", "orders", 0) == 0


async def test_saving_progress_flushes_the_log_first(tmp_path: Path) -> None:
    config = BrokerConfig(host="127.0.0.1", port=0, store_dir=tmp_path, log_file_size=1 << 20)
    async with BrokerServer(config) as server:
        broker = local(server.broker)
        broker.send()
        broker.tables.offsets.commit("billing", "orders", 0, 1)
        broker.make(BrokerProgress).save()
        assert broker.log.store.flushed_position == broker.log.store.end_position
        assert b"billing" in (tmp_path / "config" / "consumerOffset.json").read_bytes()


async def test_a_group_that_listens_to_other_topics_has_unsubscribed(broker: LocalBroker) -> None:
    assert not broker.make(BrokerProgress).has_unsubscribed("billing", "orders")
    topics = [Subscription(topic="invoices", sub_string="*")]
    data = ConsumerData(group_name="billing", subscription_data_set=topics)
    broker.tables.clients.beat(broker.peer, HeartbeatData(client_id="c1", consumer_data_set=[data]))
    assert broker.make(BrokerProgress).has_unsubscribed("billing", "orders")
    assert not broker.make(BrokerProgress).has_unsubscribed("billing", "invoices")
