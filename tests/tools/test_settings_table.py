import settings_table


def test_the_written_page_is_what_the_code_says() -> None:
    written = settings_table.DOCUMENT.read_text("utf-8")
    assert written == settings_table.drawn(), "`make map` writes it anew"


def test_every_setting_says_what_it_means() -> None:
    rows = [*settings_table.broker_rows(), *settings_table.name_server_rows()]
    assert [key for key, _, _, meaning, _ in rows if not meaning] == []


def test_defaults_carry_their_unit() -> None:
    found = {key: default for key, _, default, _, _ in settings_table.broker_rows()}
    assert found["`retention`"] == "`3d`"
    assert found["`max_message_size`"] == "`4MiB`"
    assert found["`log_file_size`"] == "`1GiB`"
    assert found["`index_slots`"] == "`5000000`"
    assert found["`sync_flush`"] == "`false`"
    assert found["`free_min`"] == ""


def test_what_may_change_is_marked() -> None:
    found = {key: changes for key, _, _, _, changes in settings_table.broker_rows()}
    assert (found["`permission`"], found["`port`"]) == ("changes", "")
