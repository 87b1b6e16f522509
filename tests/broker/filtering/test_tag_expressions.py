from tests.broker.conftest import refuses

from roquet.broker.filtering.tag_expressions import parse_tag_codes
from roquet.wire.codes import ResponseCode
from roquet.wire.java_hash import hash_code


def test_an_expression_becomes_the_codes_of_its_tags() -> None:
    assert parse_tag_codes("a||b") == frozenset({hash_code("a"), hash_code("b")})
    assert parse_tag_codes("*") is None
    assert parse_tag_codes(None) is None


def test_an_expression_without_a_tag_is_refused() -> None:
    with refuses(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    ):
        parse_tag_codes("||")
