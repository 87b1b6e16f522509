import pytest

from roquet.cli.admin.setting_changes import parse_changes
from roquet.model.errors import UsageError


def test_changes_are_keys_with_values_that_may_have_an_equals_sign_or_be_empty() -> None:
    assert parse_changes(["a=1", "quotas=x=y", "b="], {}) == {"a": "1", "quotas": "x=y", "b": ""}


@pytest.mark.parametrize("text", ["nonsense", "=1", ""])
def test_another_form_is_wrong_use(text: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE is wanted"):
        parse_changes([text], {})


def test_one_setting_is_given_once_also_under_two_names() -> None:
    with pytest.raises(UsageError, match="foo=1 and foo=2 are one setting"):
        parse_changes(["foo=1", "foo=2"], {})
    with pytest.raises(UsageError, match="theirs=1 and ours=2 are one setting"):
        parse_changes(["theirs=1", "ours=2"], {"theirs": "ours"})
