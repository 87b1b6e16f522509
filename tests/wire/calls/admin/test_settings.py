from roquet.wire.call import Reply
from roquet.wire.calls.admin import settings
from roquet.wire.codes import RequestCode
from roquet.wire.command import Command
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call, to_ext


def test_codes_are_those_of_operators() -> None:
    assert settings.UpdateSettings.code == RequestCode.UPDATE_BROKER_CONFIG
    assert settings.GetSettings.code == RequestCode.GET_BROKER_CONFIG
    assert settings.GetSettings.reply is settings.SettingsReply


def test_clean_ups_need_no_field_and_answer_with_nothing() -> None:
    kinds = (settings.CleanQueues, settings.CleanTopics, settings.DeleteExpired)
    assert [int(kind.code) for kind in kinds] == [306, 316, 329]
    assert [to_ext(kind()) for kind in kinds] == [{}, {}, {}]
    assert {kind.reply for kind in kinds} == {Reply}


def test_codes_are_those_of_the_genuine_cold_data_flow_control() -> None:
    kinds = (
        settings.SetColdReadLimits,
        settings.RemoveColdReadLimit,
        settings.GetColdReadLimits,
        settings.SetReadAhead,
    )
    assert [int(kind.code) for kind in kinds] == [2001, 2002, 2003, 2004]


def test_a_mode_of_reading_ahead_has_the_name_that_mqadmin_sends() -> None:
    assert to_ext(settings.SetReadAhead(read_ahead_mode="1")) == {"READ_AHEAD_MODE": "1"}
    command = Command(2004, fields={"READ_AHEAD_MODE": "0"})
    assert decode_call(command, settings.SetReadAhead).read_ahead_mode == "0"


def test_limits_have_the_names_that_a_genuine_broker_tells() -> None:
    text = (
        b'{"runtimeTable":{},"configTable":{"gg":1000,"hh":5},"cgColdReadThreshold":3145728,'
        b'"globalColdReadThreshold":104857600,"globalAcc":0}'
    )
    table = settings.ColdReadLimitTable(
        config_table={"gg": 1000, "hh": 5},
        cg_cold_read_threshold=3_145_728,
        global_cold_read_threshold=104_857_600,
    )
    assert codec.loads(text, settings.ColdReadLimitTable) == table
    assert codec.loads(codec.dumps(table), dict) == codec.loads(text, dict)
