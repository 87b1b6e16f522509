import pytest

from roquet.broker.broker import Broker
from roquet.broker.operations.reading_checks import ReadForbidden, ReadingChecks
from roquet.model.names import INTERNAL_TOPICS


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_internal_topics_are_readable_if_the_settings_allow_it(
    broker: Broker, topic: str
) -> None:
    checks = broker.make(ReadingChecks)
    with pytest.raises(ReadForbidden, match="nobody reads it unless"):
        checks.check_delivered(topic)
    broker.control.settings.change({"read_internal_topics": "true"}, 0)
    checks.check_delivered(topic)


async def test_other_topics_may_be_read(broker: Broker) -> None:
    broker.make(ReadingChecks).check_delivered("orders")
