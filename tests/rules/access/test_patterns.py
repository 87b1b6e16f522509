import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.access import Match, Resource, ResourcePattern, ResourceType
from roquet.model.errors import ConfigError
from roquet.rules.access.patterns import (
    comes_from,
    is_source,
    matches,
    parse_pattern,
    parse_sources,
)

NAMES = st.text("ab-", min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("*", ResourcePattern(None, Match.ANY)),
        ("Topic:*", ResourcePattern(ResourceType.TOPIC, Match.ANY)),
        ("group:g-*", ResourcePattern(ResourceType.GROUP, Match.PREFIX, "g-")),
        ("CLUSTER:a", ResourcePattern(ResourceType.CLUSTER, Match.LITERAL, "a")),
        ("Topic:a*b", ResourcePattern(ResourceType.TOPIC, Match.PREFIX, "a")),
    ],
)
def test_a_pattern_is_read_as_apaches_broker_reads_it(text: str, pattern: ResourcePattern) -> None:
    assert parse_pattern(text) == pattern


@pytest.mark.parametrize("text", ["", "orders", "Topic:", "Bogus:x", ":x", "**", "Topic"])
def test_other_texts_are_no_resources(text: str) -> None:
    assert parse_pattern(text) is None


@given(st.sampled_from(ResourceType), st.sampled_from(ResourceType), NAMES, NAMES)
def test_a_prefix_matches_names_of_its_kind_that_begin_so(
    kind: ResourceType, other: ResourceType, prefix: str, name: str
) -> None:
    pattern = parse_pattern(f"{kind}:{prefix}*")
    assert pattern is not None
    assert matches(pattern, Resource(kind, prefix + name))
    assert matches(pattern, Resource(other, name)) == (kind is other and name.startswith(prefix))


@given(NAMES, NAMES)
def test_a_name_matches_itself_alone(name: str, other: str) -> None:
    pattern = parse_pattern(f"Topic:{name}")
    assert pattern is not None
    assert matches(pattern, Resource(ResourceType.TOPIC, other)) == (name == other)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.1.2.3", "10.0.0.0/8"),
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.0.0.0/8"),
        ("10.1.2.3", "::ffff:10.0.0.0/104"),
        ("fe80::1", "fe80::/10"),
        ("2001:db8:0::1", "2001:db8::1"),
        ("10.1.2.3", "10.1.2.9/24"),
    ],
)
def test_an_address_comes_from_its_block(address: str, source: str) -> None:
    assert is_source(source)
    assert comes_from(address, source)


@pytest.mark.parametrize(
    ("address", "source"),
    [("11.0.0.1", "10.0.0.0/8"), ("::1", "10.0.0.0/8"), ("somewhere", "0.0.0.0/0"), ("", "::/0")],
)
def test_others_do_not(address: str, source: str) -> None:
    assert not comes_from(address, source)


@pytest.mark.parametrize(
    "text", ["*", "10.0.*.1", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "", "host", "10.0.0.1 ", "/8"]
)
def test_wildcards_and_names_are_no_sources(text: str) -> None:
    assert not is_source(text)


def test_sources_are_separated_by_commas_and_blanks() -> None:
    assert parse_sources("10.0.0.0/8, ::1 192.0.2.7", "x") == ("10.0.0.0/8", "::1", "192.0.2.7")
    assert parse_sources("", "x") == ()
    for wrong in ("lb", "10.0.0.0/33", "10.0.0.1:80"):
        with pytest.raises(ConfigError, match=f"x: '{wrong}' is no IP address and no block"):
            parse_sources(f"::1,{wrong}", "x")
