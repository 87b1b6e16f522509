import pytest

from roquet.model.errors import FieldError
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.command import Command
from roquet.wire.fields import decode_call, to_ext


def test_an_end_names_its_half_message_twice() -> None:
    ext = {
        "producerGroup": "pg",
        "tranStateTableOffset": "7",
        "commitLogOffset": "4711",
        "commitOrRollback": "8",
        "msgId": "key",
    }
    call = decode_call(Command(37, fields=ext), EndTransaction)
    assert (call.half_offset, call.position, call.commit_or_rollback) == (7, 4711, 8)
    assert not call.from_transaction_check
    for name in ("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"):
        rest = {key: value for key, value in ext.items() if key != name}
        with pytest.raises(FieldError, match=name):
            decode_call(Command(37, fields=rest), EndTransaction)


def test_the_broker_is_named_as_java_names_it() -> None:
    call = CheckTransactionState(half_offset=1, position=2, broker_name="broker-a")
    assert to_ext(call) == {
        "tranStateTableOffset": "1",
        "commitLogOffset": "2",
        "bname": "broker-a",
    }
