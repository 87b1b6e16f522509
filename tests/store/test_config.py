from roquet.store.config import DELAY_LEVELS_MS, MIB, StoreConfig


def test_the_defaults_are_apaches_layout() -> None:
    config = StoreConfig()
    assert config.log_file_size == 1024 * MIB
    assert config.queue_file_entries * 20 == 6_000_000
    assert 40 + config.index_slots * 4 + config.index_entries * 20 == 420_000_040


def test_there_are_eighteen_delay_levels_from_a_second_to_two_hours() -> None:
    assert len(DELAY_LEVELS_MS) == 18
    assert (DELAY_LEVELS_MS[0], DELAY_LEVELS_MS[4], DELAY_LEVELS_MS[17]) == (
        1000,
        60_000,
        7_200_000,
    )


def test_the_process_decides_how_many_maps_are_held() -> None:
    assert StoreConfig().maps_max is None
