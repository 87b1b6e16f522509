from roquet.wire.calls.query import QueryByKey
from roquet.wire.command import Command
from roquet.wire.fields import decode_call


def test_a_query_for_a_unique_key_says_so_beside_its_header() -> None:
    ext = {"topic": "t", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9"}
    assert not decode_call(Command(12, fields=ext), QueryByKey).unique_key
    ext["_UNIQUE_KEY_QUERY"] = "true"
    assert decode_call(Command(12, fields=ext), QueryByKey).unique_key
