"""The numbers of the wire, against those captured from Java."""

from enum import IntEnum

import pytest
from tests.vector_lines import vector_lines

from roquet.wire import codes
from roquet.wire import codes as wire

LINES = vector_lines("codes.jsonl")


def captured(kind: str, key: str = "code") -> dict[str, int]:
    lines = [(line["in"], line["out"]) for line in LINES]
    return {constant["name"]: out[key] for constant, out in lines if constant["kind"] == kind}


@pytest.mark.parametrize(
    ("kind", "ours"),
    [("request", wire.RequestCode), ("response", wire.ResponseCode), ("language", wire.Language)],
)
def test_our_names_have_javas_numbers(kind: str, ours: type[IntEnum]) -> None:
    apache = captured(kind)
    assert {m.name: apache.get(m.name) for m in ours} == {m.name: m.value for m in ours}


def test_the_codes_that_clients_of_today_send_are_all_known() -> None:
    first = {name: n for name, n in captured("request").items() if n < 48 or 200_000 < n < 200_060}
    assert set(first.values()) <= set(wire.RequestCode)


def test_every_language_has_its_place_in_the_compact_form() -> None:
    assert [language.value for language in wire.Language] == list(range(len(wire.Language)))


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (codes.VERSION, "V5_5_0"),
        (codes.VERSION_STANDARD_JSON, "V4_9_4"),
        (codes.VERSION_LOWERS_RETRIES, "V3_4_9"),
        (codes.VERSION_GO_AWAY, "V5_3_1"),
    ],
)
def test_versions_are_places_in_javas_list(ours: int, name: str) -> None:
    assert captured("version", "ordinal")[name] == ours


@pytest.mark.parametrize(
    ("number", "release"),
    [
        (513, "5.5.0"),
        (512, "5.5.0-snapshot"),
        (511, "5.4.9"),
        (wire.VERSION_GO_AWAY, "5.3.1"),
        (wire.VERSION_STANDARD_JSON, "4.9.4"),
        (121, None),
        (0, None),
        (-7, None),
        (2**31 - 1, None),
    ],
)
def test_a_number_stands_for_a_release(number: int, release: str | None) -> None:
    assert wire.release_of(number) == release


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("5.5.0", 513),
        ("5.4.9-rc1", 511),
        ("5.0.10", 431),
        ("4.9.4", wire.VERSION_STANDARD_JSON),
        ("1.0.8", None),
        ("5.5", None),
        ("5.5.x", None),
        ("5..0", None),
        ("", None),
    ],
)
def test_a_release_has_a_number(release: str, number: int | None) -> None:
    assert wire.number_of(release) == number
