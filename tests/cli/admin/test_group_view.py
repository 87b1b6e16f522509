from roquet.admin.group_info import BrokerDecision, GroupInfo, GroupQueueInfo
from roquet.admin.offset_reset import QueueReset
from roquet.cli.admin import group_view
from roquet.model.queue import MessageQueue


def group(**fields: object) -> GroupInfo:
    queue = GroupQueueInfo(
        topic="orders",
        broker="broker-a",
        queue_id=0,
        owners=[],
        committed=2,
        end=3,
        lag=1,
        fault="no owner",
    )
    known = {
        "name": "billing",
        "message_model": None,
        "consume_type": None,
        "lag": 1_000,
        "members": [],
        "queues": [queue],
        "assignments": [BrokerDecision(topic="orders", strategy="MACHINE", number=7)],
        "problems": ["orders broker-a queue 0 has no owner"],
    }
    return GroupInfo(**{**known, **fields})  # type: ignore[arg-type]


def test_a_group_is_shown_with_its_decisions_and_problems() -> None:
    first, decision, table, problem = group_view.group_parts(group())
    assert first == "billing  0 members  lag 1,000"
    assert decision == "orders: MACHINE, decision 7 of its broker"
    assert table.row_count == 1
    assert str(problem) == "! orders broker-a queue 0 has no owner"


def test_the_headline_of_a_group_names_its_message_model() -> None:
    line = group_view.headline(group(message_model="BROADCASTING"))
    assert line == "billing  BROADCASTING  0 members  lag 1,000"


def test_a_move_has_the_same_fields_in_text_and_json() -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    move = QueueReset(queue=queue, committed=None, target=3, begin=1, end=3, time_ms=-1)
    assert group_view.reset_fields(move) == {
        "topic": "orders",
        "broker": "broker-a",
        "queue": 1,
        "now": None,
        "then": 3,
        "again": 0,
        "skipped": 2,
    }
    cells = [list(column.cells) for column in group_view.reset_table([move]).columns]
    assert cells == [["broker-a"], ["1"], ["-"], ["3"], ["0"], ["2"]]
