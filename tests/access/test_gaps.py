import pytest

from roquet.access.gaps import ALL, AccessGap, parse_gaps, write_gaps
from roquet.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("", ()),
        ("false", ()),
        ("no", ()),
        ("Off", ()),
        ("0", ()),
        ("true", ALL),
        ("yes", ALL),
        ("on", ALL),
        ("1", ALL),
        ("ALL", ALL),
        ("passwords, Messages,", (AccessGap.MESSAGES, AccessGap.PASSWORDS)),
    ],
)
def test_gaps_are_named_and_written_as_they_are_read(
    text: str, gaps: tuple[AccessGap, ...]
) -> None:
    assert parse_gaps(text, "x") == gaps
    assert parse_gaps(write_gaps(gaps), "x") == gaps


def test_an_unknown_gap_or_one_beside_all_is_refused() -> None:
    for text in ("password", "codes,true", "false,codes"):
        with pytest.raises(ConfigError, match="is none of codes, messages") as refused:
            parse_gaps(text, "broker.conf:3")
        assert str(refused.value).startswith("broker.conf:3: ")
