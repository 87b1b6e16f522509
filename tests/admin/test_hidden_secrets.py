"""Files of settings whose secrets nobody sees."""

from pathlib import Path

import msgspec
import pytest
import yaml

from roquet.admin.hidden_secrets import hide_secrets, shown_settings
from roquet.broker.settings.value_formats import HIDDEN
from roquet.model.errors import ConfigError

SECRET = "hunter2"


def shown(text: str, tmp_path: Path, name: str = "settings") -> str:
    """The file as a bundle shows it; empty for one that is left out."""
    (tmp_path / name).write_text(text)
    try:
        return shown_settings(tmp_path / name)
    except ConfigError:
        return ""


@pytest.mark.parametrize(
    "key",
    [
        "password", "tlsKeyPassword", "ROQUET_INITIAL_USER", "initAuthenticationUser", "AWS_SECRET",
        "ROQUET_ACCESS_KEY", "s3.access-key-id", "apiKey", "init_authentication_user",
        "tlsKeyPassphrase", "db_pwd", "privateKey", "AccountKey", "Proxy-Authorization", "DB_PASS",
    ],
)  # fmt: skip
def test_values_of_secrets_are_hidden(key: str) -> None:
    assert SECRET not in hide_secrets([(key, SECRET)])
    for shown_key in ("brokerName", "authorizationEnabled"):
        assert hide_secrets([(shown_key, "a")]) == f"{shown_key}=a\n"


@pytest.mark.parametrize(
    "value",
    [
        f'{{"password":"{SECRET}"}}', f"-Dstore.password={SECRET}", f"secretKey: {SECRET}",
        f"jdbc:x://user:{SECRET}@host/db", f"http://:{SECRET}/@host",
        f"a -----BEGIN KEY----- {SECRET}",
    ],
)  # fmt: skip
def test_a_value_that_names_a_secret_is_hidden(value: str) -> None:
    assert hide_secrets([("JAVA_OPT", value)]) == f"JAVA_OPT={HIDDEN}\n"


@pytest.mark.parametrize("value", ["http://10.0.0.7:8080/a", "ops@example.org", "a:b@c"])
def test_an_address_without_a_password_is_shown(value: str) -> None:
    assert hide_secrets([("address", value)]) == f"address={value}\n"


@pytest.mark.parametrize("end", ["", "-----END KEY-----\nlistenPort=1\n"])
def test_a_key_in_lines_of_its_own_is_hidden(end: str, tmp_path: Path) -> None:
    text = f"brokerName=a\npem=-----BEGIN KEY-----\n{SECRET}\n{SECRET}\n{end}"
    more = "listenPort=1\n" if end else ""
    assert shown(text, tmp_path) == f"brokerName=a\npem={HIDDEN}\n{more}"


@pytest.mark.parametrize(
    "pair", [("Name", "Value"), ("KEY", "VAL"), ("key", "value"), ("name", "val")]
)
def test_the_value_beside_the_name_of_a_secret_is_hidden(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    name, value = pair
    text = f'[{{"{name}": "ADMIN_PASSWORD", "{value}": "{SECRET}"}}]'
    assert msgspec.json.decode(shown(text, tmp_path)) == [{name: "ADMIN_PASSWORD", value: HIDDEN}]


def test_a_long_word_is_looked_at_once() -> None:
    for value in ("x" * 1_000_000, "://" * 100_000):
        assert hide_secrets([("cipher", value)]) == f"cipher={value}\n"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"users":[{{"username":"a","password":"{SECRET}"}}]}}',
        f'[\n {{"username": "a",\n "password": "{SECRET}"}}\n]',
        f'{{"users": [{{"username": "a", "password":\n"{SECRET}"}}]}}',
        f'\ufeff\n{{"brokerName": "a", "secretKey":\n["{SECRET}",\n"{SECRET}"]}}',
        f'{{"value": "{{\\"password\\":\\n\\"{SECRET}\\"}}"}}',
        f'{{"password":\n"{SECRET}",\n}}',
        f'# users\n[{{"password":\n"{SECRET}"}}]',
        "[" * 100_000 + f'\n"{SECRET}"',
    ],
)
def test_json_shows_no_password(text: str, tmp_path: Path) -> None:
    assert SECRET not in shown(text, tmp_path)


@pytest.mark.parametrize("name", ["plain_acl.yml", "plain_acl.bak"])
@pytest.mark.parametrize("error", ["", "admin: [\n"])
@pytest.mark.parametrize(
    "secret",
    [
        f"secretKey: {SECRET}",
        f"secretKey: '{SECRET}'",
        f"secretKey:\n    {SECRET}",
        f"secretKey: |\n    first\n\n    {SECRET}",
        f"secretKey: >-\n    {SECRET}",
        f"secretKey: first\n    {SECRET}",
        f'secretKey: "first\n    {SECRET}"',
        f"secretKey:\n  - {SECRET}",
        f"secretKey: &x\n    {SECRET}",
    ],
)
def test_yaml_shows_no_password_wherever_its_value_is(
    secret: str, error: str, name: str, tmp_path: Path
) -> None:
    text = f"accounts:\n- accessKey: a\n  {secret}\n  whiteRemoteAddress: 10.0.0.7\n{error}"
    found = shown(text, tmp_path, name)
    assert SECRET not in found
    is_left_out = bool(error) and name.endswith(".yml")
    assert ("whiteRemoteAddress" in found) != is_left_out


@pytest.mark.parametrize(
    "text",
    [
        f"- {{whiteRemoteAddress: 10.0.0.7, secretKey: {SECRET}}}\n",
        f"a: 1\n? secretKey\n: {SECRET}\n",
        f"env:\n- name: ADMIN_PASSWORD\n  value: {SECRET}\n",
        f"environment:\n- ADMIN_PASSWORD={SECRET}\n",
        f"data:\n  broker.conf: |\n    brokerName=a\n    innerPassword={SECRET}\n",
        f"a: 1\n---\nsecretKey: !vault\n  {SECRET}\n",
        f"# the old password was {SECRET}\na: 1\n",
    ],
)
def test_yaml_in_other_forms_shows_no_password_either(text: str, tmp_path: Path) -> None:
    assert SECRET not in shown(text, tmp_path)


def test_of_a_file_all_but_secrets_is_shown(tmp_path: Path) -> None:
    text = f'{{"brokerName":\n"a", "users": [{{"username": "b", "password":\n"{SECRET}"}}]}}'
    hidden = {"brokerName": "a", "users": [{"username": "b", "password": HIDDEN}]}
    assert msgspec.json.decode(shown(text, tmp_path)) == hidden
    text = f"brokerName: a\nusers:\n- username: b\n  password: |\n    {SECRET}\n"
    assert yaml.safe_load(shown(text, tmp_path)) == hidden
    for more in ("", f"\\\n  {SECRET}", f"\\\n{SECRET}\\\n{SECRET}"):
        text = f"# ours\nbrokerName = a\n\ntlsKeyPassword={SECRET}{more}\nlistenPort=1\n"
        assert shown(text, tmp_path) == f"brokerName=a\ntlsKeyPassword={HIDDEN}\nlistenPort=1\n"


def test_yaml_that_names_one_value_a_million_times_or_itself_is_no_trouble(tmp_path: Path) -> None:
    names = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    found = shown(f"secretKey: {SECRET}\na0: &a0 [x]\n{names}", tmp_path)
    assert SECRET not in found
    assert "a29:" in found
    assert shown(f"a: &a\n  b: *a\nsecretKey: {SECRET}\n", tmp_path, "x.yml") == ""
