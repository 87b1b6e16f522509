from roquet.broker.broker import Broker


async def test_other_settings_are_in_force_for_all_who_look(broker: Broker) -> None:
    before = broker.control.settings.config
    broker.control.settings.change({"region": "elsewhere"}, 0)
    assert broker.control.settings.config.region == "elsewhere"
    assert before.region == "DefaultRegion"
