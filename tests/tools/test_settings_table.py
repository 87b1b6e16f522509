import settings_table
from roquet.broker.settings.definitions import SETTINGS

BROKER_ROWS = [settings_table.broker_row(name) for name in SETTINGS]


def test_the_written_page_equals_the_generated_one() -> None:
    written = settings_table.DOCUMENT.read_text("utf-8")
    assert written == settings_table.drawn(), "`make map` writes it anew"


def test_every_setting_has_a_description() -> None:
    rows = [*BROKER_ROWS, *settings_table.name_server_rows()]
    assert [key for key, _, _, meaning, _ in rows if not meaning] == []


def test_defaults_carry_their_unit() -> None:
    defaults = {key: default for key, _, default, _, _ in BROKER_ROWS}
    assert defaults["`retention`"] == "`3d`"
    assert defaults["`max_message_size`"] == "`4MiB`"
    assert defaults["`log_file_size`"] == "`1GiB`"
    assert defaults["`index_slots`"] == "`5000000`"
    assert defaults["`sync_flush`"] == "`false`"
    assert defaults["`free_min`"] == ""


def test_settings_that_may_change_at_run_time_are_marked() -> None:
    changes_by_key = {key: changes for key, _, _, _, changes in BROKER_ROWS}
    assert (changes_by_key["`permission`"], changes_by_key["`port`"]) == ("changes", "")
