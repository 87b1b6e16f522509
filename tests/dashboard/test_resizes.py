import asyncio

import pytest
from tests.dashboard.conftest import OpenSite

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.dashboard import resizes
from roquet.dashboard.resizes import Resizes
from roquet.model.errors import UsageError
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_resize_that_fails_says_why(open_site: OpenSite) -> None:
    async with open_site() as it:
        known = Resizes()
        known.begin(it.admin, "none", 2, "alice")
        await it.settle()
        progress = known.progress("none")
        assert progress is not None
        assert "no broker has a topic" in (progress.error or "")
        assert known.progress("other") is None


@in_virtual_time
async def test_resizes_are_bounded_and_end_with_the_dashboard(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizes, "RESIZES_MAX", 2)
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
