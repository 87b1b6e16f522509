"""In how many logs a message is before its sender is answered, while settings change."""

from roquet.broker.replication.confirmation.logs_in_force import LogsInForce
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET


def settings(*, waits_for_all: bool = False) -> RuntimeSettings:
    return RuntimeSettings(
        BrokerConfig(
            controller_mode=True,
            controllers=("a:1",),
            all_ack_in_sync_set=waits_for_all,
            in_sync_replicas=3,
        )
    )


def test_a_lower_number_is_in_force_once_the_controller_knows_it() -> None:
    made = settings()
    logs = LogsInForce(made)
    made.change({"inSyncReplicas": "2"}, 0)
    assert logs.current == 3
    logs.granted(3)
    assert logs.current == 3, "that heartbeat was sent before the change"
    logs.granted(2)
    assert logs.current == 2


def test_a_higher_number_is_in_force_at_once() -> None:
    made = settings()
    logs = LogsInForce(made)
    logs.granted(3)
    made.change({"inSyncReplicas": "4"}, 0)
    assert logs.current == 4
    logs.granted(3)
    assert logs.current == 4


def test_a_number_that_the_controller_may_have_stored_holds_until_a_lower_one_does() -> None:
    made = settings()
    logs = LogsInForce(made)
    logs.granted(2)
    made.change({"inSyncReplicas": "4"}, 0)
    logs.asked(4)
    made.change({"inSyncReplicas": "2"}, 0)
    assert logs.current == 4, "that answer may be lost"
    logs.asked(2)
    assert logs.current == 4
    logs.granted(2)
    assert logs.current == 2


def test_the_whole_set_stays_the_whole_set() -> None:
    made = settings(waits_for_all=True)
    logs = LogsInForce(made)
    made.change({"inSyncReplicas": "2"}, 0)
    logs.granted(ALL_OF_THE_SET)
    assert logs.current == ALL_OF_THE_SET
