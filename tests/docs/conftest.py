"""The wheel of this checkout, which pages install."""

from pathlib import Path

import pytest

from wheels import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))
