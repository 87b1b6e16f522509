import protocol_table
from roquet.broker.handlers.unserved import UNSERVED
from roquet.wire.calls.controller import ElectMaster
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.codes import RequestCode


def test_the_written_page_equals_the_generated_one() -> None:
    written = protocol_table.DOCUMENT.read_text("utf-8")
    now = protocol_table.columns(protocol_table.drawn())
    assert protocol_table.columns(written) == now, "`make map` writes it anew"


def test_every_request_has_a_row() -> None:
    rows = list(protocol_table.rows())
    assert [row[0] for row in rows] == sorted(int(code) for code in RequestCode)
    for code, _, by, why in rows:
        if code not in UNSERVED:
            assert by
        elif by != "controller":  # which brokers name in their refusal
            assert (by, why) == ("", UNSERVED[RequestCode(code)])


def test_each_request_is_listed_with_the_server_that_answers_it() -> None:
    assert list(protocol_table.answered_by(Send)) == ["broker"]
    assert list(protocol_table.answered_by(GetRoute)) == ["name server"]
    assert list(protocol_table.answered_by(ElectMaster)) == ["controller"]
    assert list(protocol_table.answered_by(ConsumersChanged)) == ["client"]


def test_a_whole_conversation_shows_more_than_a_handler() -> None:
    assert protocol_table.shown_by(Send).startswith("[conversation/")
