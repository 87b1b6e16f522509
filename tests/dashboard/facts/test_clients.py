from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.dashboard.facts.clients import with_settings_of


def test_clients_of_a_page_ask_as_its_visitor() -> None:
    client = ClientConfig(access_key="bob", secret_key="secret-of-bob", timeout_ms=7)
    for kind in (ConsumerConfig, ProducerConfig):
        config = with_settings_of(client, kind)
        assert (config.access_key, config.secret_key) == ("bob", "secret-of-bob")
        assert (config.timeout_ms, config.clock) == (7, client.clock)
