import asyncio

import msgspec
import pytest
from tests.dashboard.conftest import Site, open_site
from tests.dashboard.pages.test_jobs import row

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.dashboard import dashboard
from roquet.dashboard.dashboard import Resizes, StreamSlots
from roquet.model.errors import UsageError

pytestmark = pytest.mark.virtual_time


async def test_a_dashboard_samples_by_itself(site: Site) -> None:
    dashboard = site.browser.dashboard
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


def test_a_job_without_a_known_retention_has_neither_a_time_nor_an_alert() -> None:
    fields = msgspec.to_builtins(row("lake/orders"))
    assert (fields["overtaken_s"], fields["alert"]) == (None, "")


async def test_a_resize_that_fails_says_why(site: Site) -> None:
    known = Resizes()
    known.begin(site.admin, "none", 2, "alice")
    await site.settle()
    progress = known.progress("none")
    assert progress is not None
    assert "no broker has a topic" in (progress.error or "")
    assert known.progress("other") is None


async def test_resizes_are_bounded_and_end_with_the_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard, "RESIZES_MAX", 2)
    async with open_site() as it:
        for name in ("a", "b", "c"):
            await topics.create(it.admin, name, TopicSettings(read_queues=4, write_queues=4))
        known = Resizes()
        for name in ("a", "b"):
            known.begin(it.admin, name, 2, None)
        with pytest.raises(UsageError, match="2 topics are being resized"):
            known.begin(it.admin, "c", 2, None)
        await asyncio.sleep(0)
        await known.close()
        known.begin(it.admin, "c", 2, None)
        await known.close()
        progress = known.progress("c")
        assert progress is not None
        assert progress.is_over
