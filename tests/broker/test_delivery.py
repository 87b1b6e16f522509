from roquet.broker.broker import Broker
from roquet.broker.ingest.append import Ingest


async def test_all_services_store_by_the_one_way_into_the_log(broker: Broker) -> None:
    delivery = broker.delivery
    ways = {delivery.delay.put, delivery.timer.parts.put}
    assert ways == {broker.log.ingest}
    assert isinstance(broker.log.ingest, Ingest)


async def test_retry_topics_are_made_in_the_brokers_own_tables(broker: Broker) -> None:
    group = broker.delivery.retry_topics.group("billing")
    made = broker.delivery.retry_topics.retry_topic(group)
    assert broker.tables.topics.get("%RETRY%billing") is made
