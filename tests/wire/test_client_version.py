import pytest

from roquet.wire.client_version import release_of
from roquet.wire.codes import VERSION_GO_AWAY, VERSION_STANDARD_JSON


@pytest.mark.parametrize(
    ("number", "release"),
    [
        (513, "5.5.0"),
        (512, "5.5.0-snapshot"),
        (511, "5.4.9"),
        (VERSION_GO_AWAY, "5.3.1"),
        (VERSION_STANDARD_JSON, "4.9.4"),
        (121, None),
        (0, None),
        (-7, None),
        (2**31 - 1, None),
    ],
)
def test_a_number_stands_for_a_release(number: int, release: str | None) -> None:
    assert release_of(number) == release
