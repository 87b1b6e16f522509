"""Scenarios: valid presets, files that name what differs, and one clear error each."""

import json
from pathlib import Path

import msgspec
import pytest

from roquet.broker.services.broker_rebalance import REVIEW_MS
from roquet.broker.tables.locks import LIFETIME_MS
from roquet.client.config import ConsumerConfig
from roquet.client.rebalance.assigned_queues import HANDOVER_MS
from roquet.lab.scenario import (
    PRESETS,
    LabScenario,
    ScenarioTimes,
    from_file,
    preset,
    preset_names,
    validated,
)
from roquet.model.errors import UsageError
from roquet.rules import liveness
from roquet.rules.balance import handover


def test_every_preset_is_valid_and_has_a_description() -> None:
    for name in preset_names():
        scenario = preset(name)
        assert validated(scenario).name == name
        assert scenario.about


def test_times_are_those_of_our_client_and_broker() -> None:
    times, config = ScenarioTimes(), ConsumerConfig()
    assert times.silent_ms == liveness.SILENCE_MS_MAX
    assert times.loser_ms == HANDOVER_MS
    assert times.taker_ms == handover.HANDOVER_MS
    assert times.lock_ms == LIFETIME_MS
    assert times.close_ms == config.close_timeout_ms
    assert times.save_ms == config.save_period_ms
    assert times.invisible_ms == config.invisible_ms
    assert times.review_ms == REVIEW_MS


def test_the_work_of_a_message_follows_from_the_load() -> None:
    scenario = LabScenario(members=4, messages=1_000, duration_ms=100_000, load=0.5)
    assert scenario.rate == 10
    assert scenario.work_ms == 200  # four members at half their time: two seconds a second


def test_a_restart_is_two_changes() -> None:
    assert LabScenario(joins=1, leaves=2, kills=3, crashes=4, restarts=5).changes == 20
    assert "20 changes" in LabScenario(joins=20).describe()


def write_scenario(directory: Path, content: object) -> Path:
    path = directory / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_a_file_names_a_preset_and_the_differences(tmp_path: Path) -> None:
    path = write_scenario(
        tmp_path, {"like": "crash", "members": 12, "times": {"invisible_ms": 30_000}}
    )
    scenario = from_file(path)
    crash = PRESETS["crash"]
    assert (scenario.name, scenario.members, scenario.crashes) == ("mine", 12, crash.crashes)
    assert (scenario.times.invisible_ms, scenario.times.save_ms) == (30_000, crash.times.save_ms)


def test_the_printed_scenario_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "churn.json"
    path.write_bytes(msgspec.json.encode(PRESETS["churn"]))
    assert from_file(path) == PRESETS["churn"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"membrs": 3}, "has no field 'membrs'; did you mean 'members'"),
        ({"times": {"silnt_ms": 3}}, "did you mean 'silent_ms'"),
        ({"members": 0}, "members is 0, and has to be 1 to 200"),
        ({"members": "three"}, "Expected `int`"),
        ({"times": 3}, "Expected `object`"),
        ({"like": "crsh"}, "did you mean 'crash'"),
        ({"like": 3}, "like is the name of a scenario"),
        ({"queues": 1}, "1 queues are too few for 2 brokers"),
        ({"slow_brokers": 3}, "3 of 2 brokers cannot be slow"),
        ({"slow_members": 5}, "5 of 4 members cannot be slow"),
        ({"zipf": 1.1}, "needs the number of keys"),
        ({"key_weights": [0, 0]}, "key_weights needs numbers over 0"),
        ({"rhythm": [1, -1]}, "rhythm needs numbers over 0"),
        ({"joins": 900, "restarts": 900}, "too many"),
        ({"times": {"save_ms": 0}}, "times.save_ms cannot be 0"),
        ({"times": {"save_ms": -1}}, "times.save_ms is -1 ms"),
        ([], "one JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_an_invalid_file_is_one_clear_error(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("`", ".")):
        from_file(write_scenario(tmp_path, content))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        from_file(tmp_path / "none.json")


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'zipf-keys'.*There are steady"):
        preset("zipf-key")
