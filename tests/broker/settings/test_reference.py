from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS
from roquet.broker.settings.reference import (
    FIRST_OF_GROUPS,
    default_text,
    documented_fields,
    group_of,
    meanings,
    reported_default,
)


def test_each_setting_has_a_group_and_a_meaning() -> None:
    groups = group_of()
    assert [*groups] == [*SETTINGS]
    assert [*dict.fromkeys(groups.values())] == [*FIRST_OF_GROUPS.values()]
    assert [name for name in SETTINGS if not meanings().get(name)] == []
    assert groups["recall_key_with_topic"] == groups["recall_message"]


def test_a_default_is_written_with_its_unit_and_reported_in_the_words_of_the_key() -> None:
    assert (default_text("retention"), reported_default("fileReservedTime")) == ("3d", "72")
    assert (default_text("free_min"), reported_default("free_min")) == ("", "")
    for key in [*OWN_NAMES, *SETTINGS]:
        reported_default(key)


def test_a_field_is_documented_by_the_text_below_it() -> None:
    source = '''class Settings:
    """What is set."""
    a: int = 1
    """One,
    in two lines."""
    b: int = 2
    c = 3
    """No field."""
'''
    assert dict(documented_fields(source)) == {"a": "One, in two lines.", "b": ""}
