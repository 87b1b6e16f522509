import pytest
from tests.dashboard.conftest import Site, open_site

from roquet.admin import brokers
from roquet.admin.brokers import BrokerStatus
from roquet.dashboard.pages.brokers import BrokerRow, broker_row, reports_own_settings, setting_rows

pytestmark = pytest.mark.virtual_time


async def test_brokers_are_listed_with_load_and_roles(site: Site) -> None:
    facts = await site.browser.facts("/brokers")
    assert [one["broker"] for one in facts["brokers"]] == ["broker-a", "broker-b"]
    assert facts["brokers"][0]["in_per_s"] == 0
    assert facts["replicas"][0]["is_master"]
    await site.running.stop_broker(1)
    html = await site.browser.text("/brokers")
    assert "broker-b" not in html or "refused" in html or "no answer" in html


async def test_a_setting_is_previewed_and_then_changed(site: Site) -> None:
    facts = await site.browser.facts("/brokers/broker-a?q=autoCreateTopic")
    (setting,) = facts["settings"]
    assert (setting["value"], setting["may_change"]) == ("false", True)
    query = "key=autoCreateTopicEnable&value=true"
    preview = await site.browser.text(f"/brokers/broker-a/setting?{query}")
    assert "autoCreateTopicEnable is false, then true" in preview
    form = {"key": "autoCreateTopicEnable", "value": "true"}
    shown = await site.browser.post("/brokers/broker-a/setting", form)
    assert "autoCreateTopicEnable is changed" in shown.text
    settings = await brokers.settings(site.admin, "broker-a")
    assert settings["autoCreateTopicEnable"] == "true"


async def test_what_a_broker_refuses_or_does_not_know_is_not_changed(site: Site) -> None:
    unknown = await site.browser.post("/brokers/broker-a/setting", {"key": "autoCreateTopicX"})
    assert unknown.status_code == 404
    assert "has no setting" in unknown.text
    form = {"key": "brokerName", "value": "other"}
    refused = await site.browser.post("/brokers/broker-a/setting", form)
    assert refused.status_code == 400
    assert "cannot change while the broker runs" in refused.text
    assert (await site.browser.get("/brokers/none")).status_code == 404


async def test_a_secret_setting_is_neither_shown_nor_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, secret = "innerClientAuthenticationCredentials", "t0psecret"

    async def settings(*_: object) -> dict[str, str]:
        return {key: secret}

    monkeypatch.setattr("roquet.admin.brokers.settings", settings)
    async with open_site() as it:
        shown = await it.browser.text("/brokers/broker-a")
        assert key in shown
        query = f"key={key}&value={secret}"
        preview = await it.browser.text(f"/brokers/broker-a/setting?{query}")
        assert preview.count(secret) == 1  # in the field that is sent on
        await it.browser.post("/brokers/broker-a/setting", {"key": key, "value": secret})
        assert secret not in shown + await it.browser.text("/audit")


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


OURS = {"brokerName": "a", "autoCreateTopicEnable": "true", "inner_credentials": ""}


def test_settings_of_our_broker_say_whether_they_may_change() -> None:
    own = next(key for key in _own_keys())
    values = {**OURS, own: "x", "useTLS": "false"}
    assert reports_own_settings(values)
    rows = {row.key: row.may_change for row in setting_rows(values)}
    assert rows["brokerName"] is False
    assert rows["autoCreateTopicEnable"] is True


def test_settings_of_our_broker_are_grouped_and_marked_where_they_are_changed() -> None:
    own = next(key for key in _own_keys())
    values = {own: "x", "fileReservedTime": "48", "brokerName": "broker-a", "aclEnable": "false"}
    rows = {row.key: row for row in setting_rows(values)}
    assert [*rows] == ["brokerName", own, "fileReservedTime", "aclEnable"]
    kept = rows["fileReservedTime"]
    assert (kept.name, kept.group, kept.default) == ("retention", "Files and retention", "72")
    assert kept.meaning.startswith("How long")
    assert {key: row.is_changed for key, row in rows.items()} == {
        "brokerName": False, own: True, "fileReservedTime": True, "aclEnable": False,
    }  # fmt: skip
    assert [row.key for row in setting_rows(values, changed_only=True)] == [own, "fileReservedTime"]
    assert [row.key for row in setting_rows(values, "retention")] == ["fileReservedTime"]


async def test_a_broker_that_was_just_started_has_few_changed_settings(site: Site) -> None:
    rows = (await site.browser.facts("/brokers/broker-a?changed=1"))["settings"]
    names = {row["key"] for row in rows}
    assert {"autoCreateTopicEnable", "listenPort"} <= names
    assert len(rows) < 20, names


def test_another_broker_does_not_say() -> None:
    values = {"brokerName": "a", "flushDiskType": "ASYNC_FLUSH"}
    assert [row.may_change for row in setting_rows(values)] == [None, None]


def test_settings_are_searched_in_any_case() -> None:
    values = {"brokerName": "a", "flushDiskType": "ASYNC_FLUSH"}
    assert [row.key for row in setting_rows(values, "DISK")] == ["flushDiskType"]


def _own_keys() -> list[str]:
    from roquet.broker.settings.definitions import SETTINGS

    return [name for name, setting in SETTINGS.items() if not setting.apache_keys]
