"""Controller: the parts of a running controller, which its handlers use."""

from typing import Final

import msgspec

from roquet.controller.config import ControllerConfig
from roquet.controller.elections import Elections
from roquet.controller.leadership import Leadership
from roquet.controller.liveness import Liveness
from roquet.controller.role_notices import RoleNotices
from roquet.net.clock import Clock
from roquet.observe.log_levels import apply_log_levels

GROUPS_MAX: Final = 10_000
"""Groups of brokers; more are a mistake, since they are never removed by themselves."""


class Controller(msgspec.Struct, kw_only=True):
    """Parts of a running controller."""

    config: ControllerConfig
    """Replaced when a setting changes at run time."""
    clock: Clock
    liveness: Liveness
    leadership: Leadership
    elections: Elections
    notices: RoleNotices

    def configure(self, config: ControllerConfig) -> None:
        """Use these settings from now on."""
        before, self.config = self.config, config
        if config.log_levels != before.log_levels:
            apply_log_levels(config.log_levels)
        self.elections.elects_unclean = config.elect_unclean_master
        self.elections.notifies = config.notify_role_changes
        self.elections.scan_ms = config.scan_ms
