"""SimulatedConsumer: its handler takes time, fails as told, and notes its attempts."""

import asyncio

from roquet.client import Producer, ProducerConfig, PushConsumer
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.admin.topic import CreateTopic
from simulation.balance.scenario import draw_scenario
from simulation.consumer import SimulatedConsumer, consumer_config
from simulation.history import History
from simulation.hosts import Hosts
from simulation.servers import NAMESRV, SimulatedServers
from simulation.simulator import isolated_clients

TOPIC = CreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=6)
HOST = "10.0.2.1"


@in_virtual_time
async def test_attempts_are_in_the_history_until_the_consumer_leaves() -> None:
    loop = this_loop()
    scenario = draw_scenario(0)
    history = History(loop.clock.monotonic_ms)
    hosts = Hosts(loop)
    await SimulatedServers(0, 1, loop, hosts, (TOPIC,)).start()
    await asyncio.sleep(1)
    config = consumer_config(HOST, scenario, loop.clock)
    with isolated_clients():
        inner = PushConsumer(NAMESRV, group="g", topic="t", config=config)
        answers = iter([True, False])
        consumer = SimulatedConsumer(HOST, inner, history, scenario, lambda _: next(answers))
        life = hosts.run(HOST, consumer.live())
        settings = ProducerConfig(clock=loop.clock, client_ip="10.0.4.1", instance="p")
        async with Producer(NAMESRV, config=settings) as producer:
            await producer.send("t", b"m1")
        await asyncio.sleep(60)
        inner.stop()
        await life
    assert [(a.name, a.tries, a.failed) for a in history.attempts] == [
        ("m1", 0, True),
        ("m1", 1, False),
    ]
    least, most = scenario.handling_ms
    assert all(least <= (a.ended_ms or 0) - a.began_ms <= most for a in history.attempts)
    assert history.handled("g") == {"m1"}
    assert history.lines[-1].endswith(f"{HOST} has left")
