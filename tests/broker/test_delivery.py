from roquet.broker.broker import Broker


async def test_all_services_append_through_the_same_ingest(broker: Broker) -> None:
    delivery = broker.delivery
    assert delivery.delay.message_log is broker.log
    assert delivery.timer.context.message_log is broker.log


async def test_retry_topics_are_made_in_the_brokers_own_tables(broker: Broker) -> None:
    group = broker.delivery.retry_topics.group("billing")
    made = broker.delivery.retry_topics.retry_topic(group)
    assert broker.tables.topics.get("%RETRY%billing") is made
