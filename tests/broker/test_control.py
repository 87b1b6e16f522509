from roquet.broker.broker import Broker


async def test_changed_settings_are_seen_by_all_parts(broker: Broker) -> None:
    before = broker.control.settings.config
    broker.control.settings.change({"region": "elsewhere"}, 0)
    assert broker.control.settings.config.region == "elsewhere"
    assert before.region == "DefaultRegion"
