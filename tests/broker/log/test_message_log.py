from roquet.broker.app import BrokerServer


async def test_the_address_of_the_log_is_the_advertised_one(server: BrokerServer) -> None:
    assert server.broker.log.address == server.address


async def test_the_log_knows_the_memory_of_the_machine(server: BrokerServer) -> None:
    assert server.broker.log.memory > 0
