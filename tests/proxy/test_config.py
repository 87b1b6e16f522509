"""Settings of the proxy."""

import pytest

from roquet.model.errors import ConfigError
from roquet.proxy.config import ProxyConfig


def test_a_timeout_has_at_least_a_millisecond() -> None:
    with pytest.raises(ConfigError, match="call_timeout_ms: 0 is less than 1"):
        ProxyConfig(call_timeout_ms=0)
