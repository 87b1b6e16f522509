import pytest

from roquet.broker.broker import Broker
from roquet.broker.operations.access import internal_topic_fault
from roquet.model.names import INTERNAL_TOPICS


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_internal_topics_are_readable_if_the_settings_allow_it(
    broker: Broker, topic: str
) -> None:
    assert "nobody reads it unless" in (internal_topic_fault(broker.control, topic) or "")
    broker.control.settings.change({"read_internal_topics": "true"}, 0)
    assert internal_topic_fault(broker.control, topic) is None


async def test_other_topics_may_be_read(broker: Broker) -> None:
    assert internal_topic_fault(broker.control, "orders") is None
