import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raising import raises

from roquet.model.errors import CallRefused, FieldError
from roquet.wire.properties_file import (
    SIZE_MAX,
    escape_properties,
    read_properties,
    read_unescaped,
    requested_settings,
    write_properties,
)

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"([A-Za-z0-9/;:,=][A-Za-z0-9/;:,= ]{0,30})?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb = 2\r\nc:3\nd 4\re", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# no\n! neither\n\n   \n a=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("levels=1s \\\n   5s \\\n   10s\nb=1", {"levels": "1s 5s 10s", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("path=C\\:\\\\x\\t\\u00e9", {"path": "C:\\x\té"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a==1", {"a": "=1"}),
        ("last=goes on\\", {"last": "goes on"}),
        ("", {}),
    ],
)
def test_every_java_properties_file_is_read(text: str, values: dict[str, str]) -> None:
    assert read_properties(text) == values


def test_a_broken_character_is_refused() -> None:
    with pytest.raises(FieldError, match="four hexadecimal digits"):
        read_properties("a=\\u12")


def test_settings_are_written_as_apaches_servers_write_them() -> None:
    assert write_properties({"a": "1", "b": "x\ny\r"}) == "a=1\nb=x\\ny\n"


@given(st.dictionaries(NAMES, VALUES))
def test_written_values_are_read_back(values: dict[str, str]) -> None:
    assert read_properties(write_properties(values)) == values


def test_servers_settings_have_no_escapes() -> None:
    text = write_properties({"path": "C:\\new\\users", "a": "b=c", "empty": ""})
    assert read_unescaped(text) == {"path": "C:\\new\\users", "a": "b=c", "empty": ""}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_escaped_settings_are_read_back(values: dict[str, str]) -> None:
    assert read_properties(escape_properties(values)) == values


@given(st.text(alphabet="ab=:#! \t\f\v\r\n\u2028"))
def test_an_escape_elsewhere_changes_no_other_line(text: str) -> None:
    assert read_properties(f"{text}\nc\\d=1") == read_properties(text) | {"cd": "1"}


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_properties(text)
    except FieldError:
        assert "\\u" in text


def test_a_text_over_the_limit_is_refused() -> None:
    assert read_properties("a=" + "b" * (SIZE_MAX - 2)) == {"a": "b" * (SIZE_MAX - 2)}
    with pytest.raises(FieldError, match="65537 characters: 65536 are allowed"):
        read_properties("a" * (SIZE_MAX + 1))


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"\xff\xfe", 1, "string2Properties error: 'utf-8' codec"),
        (b"a=\\u12", 1, "string2Properties error: a properties file: "),
        (b"b=1\na=2", 16, "Can not update config in black list."),
    ],
)
def test_a_request_for_other_settings_is_refused_as_by_apaches_servers(
    body: bytes, code: int, remark: str
) -> None:
    with raises(CallRefused, code=code, match=remark):
        requested_settings(body, {"a"})


def test_a_request_for_settings_is_a_properties_file() -> None:
    assert requested_settings(b"a=1\nb=2", {"c"}) == {"a": "1", "b": "2"}


def test_a_value_may_go_on_in_thousands_of_lines() -> None:
    assert read_properties("a=" + "b\\\n" * 10_000) == {"a": "b" * 10_000}
