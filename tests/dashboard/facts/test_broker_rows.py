from roquet.admin.brokers import BrokerStatus
from roquet.dashboard.facts.broker_rows import BrokerRow, broker_row


def row_of(**info: str) -> BrokerRow:
    return broker_row(
        BrokerStatus(cluster="c", broker="broker-a", broker_id=1, address="h:1", info=info)
    )


def test_a_broker_says_how_busy_it_is() -> None:
    row = row_of(
        putTps="12.5 3.0 1.0",
        getTransferredTps="7 6 5",
        msgPutTotalTodayNow="110",
        msgPutTotalTodayMorning="100",
        commitLogDiskRatio="0.25",
        sendThreadPoolQueueSize="4",
        bootTimestamp="1700000000000",
    )
    assert (row.in_per_s, row.out_per_s, row.today, row.disk) == (12.5, 7, 10, 0.25)
    assert (row.send_waiting, row.booted_ms) == (4, 1_700_000_000_000)


def test_what_a_broker_does_not_say_is_not_known() -> None:
    row = row_of(msgPutTotalTodayNow="odd", putTps="")
    assert (row.in_per_s, row.today, row.disk, row.send_waiting) == (None, None, None, None)
