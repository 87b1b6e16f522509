import pytest

from roquet.metrics.exporter_settings import EXPORTER_SETTINGS, MetricsExporterType, parse_labels
from roquet.model.errors import ConfigError


def parse(key: str, text: str) -> object:
    return EXPORTER_SETTINGS[key].parse(text, f"file: {key}")


def test_apaches_keys_set_the_page_of_metrics() -> None:
    assert parse("metricsExporterType", "PROM") is MetricsExporterType.PROM
    assert parse("metricsPromExporterPort", "9100") == 9100
    assert parse("metricsPromExporterHost", "10.0.0.1") == "10.0.0.1"
    assert parse("metricsPromExporterHost", "") == ""


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("metricsExporterType", "prometheus"),
        ("metricsPromExporterPort", "-1"),
        *(("metricsLabel", text) for text in ("zone", "zone:", ":a", "a b:c", "__x:1", "le:1")),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_key(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"file: {key}"):
        parse(key, text)


def test_labels_are_names_and_values() -> None:
    assert parse("metricsLabel", "zone:a") == "zone:a"
    assert parse_labels("", "x") == {}
    assert parse_labels("zone:a, url:http://b:1,", "x") == {"zone": "a", "url": "http://b:1"}
