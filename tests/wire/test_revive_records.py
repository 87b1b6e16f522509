import json
from typing import Any

import pytest

from roquet.model.errors import FieldError
from roquet.wire import revive_records


def test_a_note_says_when_it_was_made() -> None:
    assert revive_records.revive_properties("ck", 5) == b"TAGS\x01ck\x02TIMER_DELIVER_MS\x015\x02"


def test_a_checkpoint_is_written_with_javas_names() -> None:
    body = revive_records.CheckpointBody(
        broker="b", group="g", steps=[0, 2], invisible_ms=60_000, count=2, pop_ms=5, queue_id=1,
        start=100, topic="t",
    )  # fmt: skip
    raw = revive_records.encode_body(body)
    assert json.loads(raw) == {
        "bn": "b", "c": "g", "d": [0, 2], "it": 60_000, "n": 2, "pt": 5, "q": 1, "so": 100,
        "t": "t",
    }  # fmt: skip
    assert revive_records.decode_checkpoint(raw) == body
    assert list(body.offsets()) == [100, 102]


def test_only_a_suspended_checkpoint_says_so() -> None:
    raw = b'{"so":7,"sp":true,"pt":1,"it":1,"n":1,"q":0,"t":"t","c":"g"}'
    body = revive_records.decode_checkpoint(raw)
    assert body.is_suspended
    assert json.loads(revive_records.encode_body(body))["sp"] is True


def test_a_checkpoint_without_steps_holds_messages_one_behind_the_other() -> None:
    raw = b'{"so":7,"pt":1,"it":1,"bm":0,"n":3,"q":0,"t":"t","c":"g","ro":9,"rp":"1"}'
    assert list(revive_records.decode_checkpoint(raw).offsets()) == [7, 8, 9]


@pytest.mark.parametrize(
    "changes",
    [
        {"so": -1}, {"n": 0}, {"n": 10**6}, {"d": [0]}, {"d": [0, 10**9]}, {"d": [-1, 0]},
        {"it": 0}, {"pt": -1}, {"q": -1}, {"it": "x"}, {"c": None},
    ],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    fields = {"so": 7, "pt": 1, "it": 1, "n": 2, "q": 0, "t": "t", "c": "g", "d": [0, 1]}
    with pytest.raises(FieldError):
        revive_records.decode_checkpoint(json.dumps(fields | changes).encode())


def test_an_acknowledgement_is_written_with_javas_names() -> None:
    one = revive_records.AckBody(
        offset=9, broker="b", group="g", pop_ms=5, queue_id=1, start=7, topic="t"
    )
    assert json.loads(revive_records.encode_body(one)) == {
        "ao": 9, "bn": "b", "c": "g", "pt": 5, "q": 1, "so": 7, "t": "t",
    }  # fmt: skip
    assert revive_records.decode_ack(revive_records.encode_body(one)) == one
    with pytest.raises(FieldError):
        revive_records.decode_ack(b"[]")
