from roquet.dashboard.facts.setting_rows import reports_own_settings, setting_rows

OURS = {"brokerName": "a", "autoCreateTopicEnable": "true", "inner_credentials": ""}


def test_settings_of_our_broker_say_whether_they_may_change() -> None:
    own = next(key for key in _own_keys())
    values = {**OURS, own: "x", "useTLS": "false"}
    assert reports_own_settings(values)
    rows = {row.key: row.may_change for row in setting_rows(values)}
    assert rows["brokerName"] is False
    assert rows["autoCreateTopicEnable"] is True


def test_another_broker_does_not_say() -> None:
    values = {"brokerName": "a", "flushDiskType": "ASYNC_FLUSH"}
    assert [row.may_change for row in setting_rows(values)] == [None, None]


def test_settings_are_searched_in_any_case() -> None:
    values = {"brokerName": "a", "flushDiskType": "ASYNC_FLUSH"}
    assert [row.key for row in setting_rows(values, "DISK")] == ["flushDiskType"]


def _own_keys() -> list[str]:
    from roquet.broker.settings.definitions import SETTINGS

    return [name for name, setting in SETTINGS.items() if not setting.apache_keys]
