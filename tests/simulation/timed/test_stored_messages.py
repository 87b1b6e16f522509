"""Stored messages: every record of every queue, as the checks read it."""

from roquet.client import Producer, ProducerConfig
from roquet.model.message import Message
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.cluster import cluster
from simulation.timed.stored_messages import logged_messages


@in_virtual_time
async def test_each_record_is_found_with_its_name_and_time() -> None:
    clock = this_loop().clock
    async with cluster(clock=clock) as running:
        config = ProducerConfig(clock=clock, client_ip="127.0.0.1")
        async with Producer(running.namesrv_addr, config=config) as producer:
            for n in range(3):
                await producer.send(Message("t", b"e%d" % n, tag="a"))
            await producer.send(Message("t", b"later", delay_level=2))
        store = running.brokers[0].broker.log.store
        found = logged_messages({"b": store}, clock.now_ms() - clock.monotonic_ms())
    there = [one for one in found if one.topic == "t"]
    assert sorted(one.name for one in there) == ["e0", "e1", "e2"]
    assert {one.properties["TAGS"] for one in there} == {"a"}
    assert all(0 <= clock.monotonic_ms() - one.stored_ms < 60_000 for one in there)
    assert [one.name for one in found if one.topic == "SCHEDULE_TOPIC_XXXX"] == ["later"]
