import asyncio

from demos.failover.sampling import BrokerSampler
from demos.failover.timeline import BrokerState
from roquet.client.producer import Producer
from roquet.testing.cluster import cluster


async def test_roles_and_confirmed_messages_are_asked_of_each_broker() -> None:
    async with cluster(brokers=1) as running:
        replica = await running.add_replica()
        async with Producer(running.namesrv_addr) as producer:
            for _ in range(3):
                await producer.send("flights", b"x")
        addresses = {"one": running.brokers[0].address, "two": replica.address}
        sampler = BrokerSampler(addresses, "flights", lambda: 7)
        task = asyncio.create_task(sampler.serve())
        async with asyncio.timeout(30):
            while "two" not in sampler.latest or sampler.latest["one"].confirmed < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        one, two = sampler.latest["one"], sampler.latest["two"]
        assert (one.state, one.at_ms, one.epoch) == (BrokerState.LEADS, 7, 0)
        assert two.state is BrokerState.FOLLOWS
        sampler.forget()
        assert (sampler.samples, sampler.latest) == ([], {})
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_broker_that_does_not_answer_is_in_no_sample() -> None:
    async with cluster(brokers=2) as running:
        addresses = {"one": running.brokers[0].address, "two": running.brokers[1].address}
        await running.stop_broker(1)
        sampler = BrokerSampler(addresses, "flights", lambda: 7)
        task = asyncio.create_task(sampler.serve())
        async with asyncio.timeout(30):
            while len(sampler.samples) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert {sample.broker for sample in sampler.samples} == {"one"}
        assert sampler.latest["one"].confirmed == 0, "the topic is not there"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
