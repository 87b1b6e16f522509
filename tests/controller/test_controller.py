from msgspec.structs import replace
from tests.controller.conftest import controller

from roquet.testing.clock import in_virtual_time


@in_virtual_time
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
