from roquet.wire.call import Reply
from roquet.wire.calls.admin.cleanup import CleanQueues, CleanTopics, DeleteExpired
from roquet.wire.fields import to_ext


def test_clean_ups_need_no_field_and_answer_with_nothing() -> None:
    kinds = (CleanQueues, CleanTopics, DeleteExpired)
    assert [int(kind.code) for kind in kinds] == [306, 316, 329]
    assert [to_ext(kind()) for kind in kinds] == [{}, {}, {}]
    assert {kind.reply for kind in kinds} == {Reply}
