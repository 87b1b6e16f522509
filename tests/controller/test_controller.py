import logging

import pytest
from msgspec.structs import replace
from tests.controller.conftest import controller

from roquet.observe.log_levels import apply_log_levels

pytestmark = pytest.mark.virtual_time


async def test_changed_settings_count_from_the_next_election_on() -> None:
    async with controller() as server:
        parts = server.controller
        config = replace(
            parts.config, elect_unclean_master=True, notify_role_changes=False, scan_ms=77
        )
        parts.configure(config)
        assert parts.config == config
        elections = parts.elections
        assert (elections.elects_unclean, elections.notifies, elections.scan_ms) == (
            True, False, 77,
        )  # fmt: skip


async def test_log_levels_change_while_it_runs() -> None:
    net = logging.getLogger("roquet.net")
    try:
        async with controller() as server:
            parts = server.controller
            parts.configure(replace(parts.config, log_levels="roquet.net:DEBUG"))
            assert net.level == logging.DEBUG
            parts.configure(replace(parts.config, log_levels=""))
            assert net.level == logging.NOTSET
    finally:
        apply_log_levels("")
