from roquet.model.topic import DataVersion
from roquet.wire.calls.timer import TimerMetricsBody, TopicTimerCount
from roquet.wire.fastjson import codec


def test_the_metrics_are_the_genuine_ones() -> None:
    text = (
        b'{"dataVersion":{"counter":6,"stateVersion":0,"timestamp":1795247573069},'
        b'"timingCount":{"TopicB":{"count":2,"timeStamp":1795247573069}}}'
    )
    table = TimerMetricsBody(
        timing_count={"TopicB": TopicTimerCount(count=2, time_stamp=1_795_247_573_069)},
        data_version=DataVersion(timestamp=1_795_247_573_069, counter=6),
    )
    assert codec.loads(text, TimerMetricsBody) == table
    assert codec.dumps(table) == text
