from tests.admin.mirror.mirrored import bodies, run_once, send, two_clusters

from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror.topics import chosen
from roquet.admin.topics import TopicSettings


def test_names_are_chosen_by_patterns_and_never_those_of_retries() -> None:
    every = ["orders", "orders-eu", "%RETRY%orders", "%DLQ%orders", "parcels"]
    assert chosen(every, []) == ["orders", "orders-eu", "parcels"]
    assert chosen(every, ["orders*", "%*"]) == ["orders", "orders-eu"]


async def test_a_topic_is_made_with_the_type_and_the_queues_of_the_source() -> None:
    async with two_clusters() as (source, target):
        settings = TopicSettings(
            read_queues=3, write_queues=3, order=True, attributes="+message.type=FIFO"
        )
        async with AdminClient(source.namesrv_addr) as admin:
            await topics.create(admin, "steps", settings)
        await run_once(source, target, topics=("steps",))
        async with AdminClient(target.namesrv_addr) as admin:
            (place,) = (await topics.show(admin, "steps")).places
        assert (place.read_queues, place.write_queues, place.permission) == (3, 3, "RW")
        assert place.order
        assert "FIFO" in str(place.attributes)


async def test_a_topic_with_fewer_queues_gets_more_and_keeps_its_messages() -> None:
    async with two_clusters(default_queue_count=1) as (source, target):
        await send(target.namesrv_addr, 2, start=50)
        async with AdminClient(source.namesrv_addr) as admin:
            await topics.create(admin, "orders", TopicSettings(read_queues=4, write_queues=4))
        await send(source.namesrv_addr, 8)
        running = await run_once(source, target)
        assert {one.fault for one in running.queues} == {None}
        found = await bodies(target.namesrv_addr, "orders")
        assert sorted(found) == [0, 1, 2, 3]
        assert sum(len(own) for own in found.values()) == 10
