import pytest

from roquet.model.epoch import EpochEntry


def test_entries_are_values() -> None:
    assert EpochEntry(2, 1075) == EpochEntry(epoch=2, start=1075)
    assert len({EpochEntry(2, 1075), EpochEntry(2, 1075)}) == 1
    with pytest.raises(AttributeError):
        EpochEntry(2, 1075).start = 0  # type: ignore[misc]
