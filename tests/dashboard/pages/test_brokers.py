import pytest
from tests.dashboard.conftest import OpenSite

from roquet.admin import brokers
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_brokers_are_listed_with_load_and_roles(open_site: OpenSite) -> None:
    async with open_site() as it:
        facts = await it.browser.facts("/brokers")
        assert [one["broker"] for one in facts["brokers"]] == ["broker-a", "broker-b"]
        assert facts["brokers"][0]["in_per_s"] == 0
        assert facts["replicas"][0]["is_master"]
        await it.running.stop_broker(1)
        html = await it.browser.text("/brokers")
        assert "broker-b" not in html or "refused" in html or "no answer" in html


@in_virtual_time
async def test_a_setting_is_previewed_and_then_changed(open_site: OpenSite) -> None:
    async with open_site() as it:
        facts = await it.browser.facts("/brokers/broker-a?q=autoCreateTopic")
        (setting,) = facts["settings"]
        assert (setting["value"], setting["may_change"]) == ("false", True)
        query = "key=autoCreateTopicEnable&value=true"
        preview = await it.browser.text(f"/brokers/broker-a/setting?{query}")
        assert "autoCreateTopicEnable is false, then true" in preview
        form = {"key": "autoCreateTopicEnable", "value": "true"}
        shown = await it.browser.post("/brokers/broker-a/setting", form)
        assert "autoCreateTopicEnable is changed" in shown.text
        settings = await brokers.settings(it.admin, "broker-a")
        assert settings["autoCreateTopicEnable"] == "true"


@in_virtual_time
async def test_what_a_broker_refuses_or_does_not_know_is_not_changed(open_site: OpenSite) -> None:
    async with open_site() as it:
        unknown = await it.browser.post("/brokers/broker-a/setting", {"key": "autoCreateTopicX"})
        assert unknown.status_code == 400
        assert "has no setting" in unknown.text
        form = {"key": "brokerName", "value": "other"}
        refused = await it.browser.post("/brokers/broker-a/setting", form)
        assert refused.status_code == 400
        assert "cannot change while the broker runs" in refused.text
        assert (await it.browser.get("/brokers/none")).status_code == 400


@in_virtual_time
async def test_a_secret_setting_is_neither_shown_nor_logged(
    open_site: OpenSite, monkeypatch: pytest.MonkeyPatch
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
