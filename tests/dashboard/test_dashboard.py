import pytest
from tests.dashboard.conftest import OpenSite

from roquet.dashboard.dashboard import StreamSlots
from roquet.model.errors import UsageError
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_dashboard_samples_by_itself(open_site: OpenSite) -> None:
    async with open_site() as it:
        dashboard = it.browser.dashboard
        sample = await dashboard.sampler.wait(5_000)
        assert sample is not None
        assert [one.broker for one in sample.brokers] == ["broker-a", "broker-b"]
        assert dashboard.client.clock is dashboard.clock


def test_a_slot_is_free_again_when_its_stream_has_ended() -> None:
    slots = StreamSlots(1)
    with slots.take():
        assert slots.is_full()
        with pytest.raises(UsageError, match="too many live tails are open already"), slots.take():
            pass
    assert not slots.is_full()


def test_one_user_does_not_take_the_slots_of_all_others() -> None:
    slots = StreamSlots(limit=3, each=1)
    with slots.take("bob"):
        with pytest.raises(UsageError, match="too many"), slots.take("bob"):
            pass
        with slots.take("root"), slots.take("alice"):
            assert slots.is_full("eve")
    assert not slots.is_full("bob")
