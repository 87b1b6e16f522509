from roquet.broker.app import BrokerServer


async def test_its_address_is_what_clients_are_told(server: BrokerServer) -> None:
    assert server.broker.log.address == server.address


async def test_it_is_told_what_the_machine_can_keep_in_memory(server: BrokerServer) -> None:
    assert server.broker.log.memory > 0
