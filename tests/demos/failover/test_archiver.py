import asyncio
from pathlib import Path

from demos.failover import archiver, flight_table
from demos.failover.archiver import ArchiverSettings
from roquet.client.producer import Producer
from roquet.model.message import Message
from roquet.testing.cluster import cluster


async def test_every_flight_becomes_a_row_once(tmp_path: Path) -> None:
    table = tmp_path / "flights.sqlite"
    async with cluster(brokers=1) as running, Producer(running.namesrv_addr) as producer:
        await producer.send_many(
            Message("flights", b"x", order_key=f"N{row % 3}", properties={"row": str(row)})
            for row in range(40)
        )
        settings = ArchiverSettings(namesrv=running.namesrv_addr, group="a", table=str(table))
        task = asyncio.create_task(archiver.run(settings))
        async with asyncio.timeout(30):
            while flight_table.count_messages(table) < 40:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    counts = flight_table.count_all(table, [])
    assert (counts.messages, counts.rows, counts.conflicts, counts.disordered) == (40, 40, 0, 0)
