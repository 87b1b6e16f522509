from urllib.parse import parse_qs, urlsplit

from roquet.dashboard.facts.message_rows import message_row, message_rows, place
from roquet.dashboard.masking import MaskRule
from roquet.model.message import StoredMessage

MESSAGE = StoredMessage(
    topic="%DLQ%a&b=c",
    body=b"secret",
    properties={"TAGS": "a\u202eb", "KEYS": "k1 k2"},
    broker_name="broker a",
    queue_id=3,
    queue_offset=7,
    position=0,
    size=100,
)


def test_a_row_leads_to_its_message_whatever_its_topic_is_called() -> None:
    row = message_row(MESSAGE, ())
    query = {name: values[0] for name, values in parse_qs(urlsplit(row.address).query).items()}
    assert query == place(MESSAGE)
    assert (row.keys, row.size, row.preview) == ("k1 k2", 6, "secret")


def test_what_would_turn_text_around_is_escaped() -> None:
    assert message_row(MESSAGE, ()).tag == "a\\u202eb"


def test_hidden_bodies_are_not_in_rows() -> None:
    (row,) = message_rows([MESSAGE], [MaskRule("*")])
    assert row.is_masked
    assert "secret" not in repr(row)
