import json
from pathlib import Path

import pytest
from tests.cli.running import listed_topics, must_fail, roquet

from roquet.cli.terminal import arguments, profiles
from roquet.model.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "profiles.json"
    monkeypatch.setattr(profiles, "path", lambda: place)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return place


def test_a_profile_is_made_listed_used_and_removed(file: Path) -> None:
    assert roquet("profile", "ls").output == "no profile\n"
    made = roquet("profile", "set", "prod", "-n", "h:9876")
    assert made.stdout == f"prod: saved in {file}\n"
    assert "`roquet profile use prod`" in made.stderr
    roquet("profile", "set", "dev", "-n", "d:1,d:2", "--tls")
    assert roquet("profile", "use", "dev").output == "dev is the current one\n"
    rows = [line.split() for line in roquet("profile", "ls").output.splitlines()]
    assert rows == [
        ["profile", "name", "servers", "user", "TLS"],
        ["*", "dev", "d:1;d:2", "-", "yes"],
        ["prod", "h:9876", "-", "no"],
    ]
    assert roquet("profile", "rm", "dev", "-y").output.endswith("dev: removed\n")
    assert profiles.load().current is None
    assert roquet("profile", "rm", "prod", "--dry-run").exit_code == 0
    assert [*profiles.load().profiles] == ["prod"]
    assert roquet("profile", "use", "--none").output == "no profile is the current one\n"


def test_what_is_not_given_stays_and_an_empty_text_takes_away(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    roquet("profile", "set", "prod", "-n", "h:1", "--tls-ca", ca, "--tls-server-name", "mq")
    roquet("profile", "set", "prod", "--tls-server-name", "")
    (prod,) = profiles.load().profiles.values()
    assert (prod.namesrv, prod.tls_ca, prod.tls_server_name) == ("h:1", str(ca), None)


def test_a_secret_is_read_from_stdin_and_never_printed(file: Path) -> None:
    command = ("profile", "set", "prod", "-n", "h:1", "--access-key", "alice")
    made = roquet(*command, "--secret-key-file", "-", "--json", typed="geheim\n")
    shown = [made.output] + [
        roquet("profile", *words).output
        for words in (["ls"], ["ls", "--json"], ["show", "prod"], ["show", "prod", "--json"])
    ]
    assert not [text for text in shown if "geheim" in text]
    assert "geheim" in file.read_text()
    roquet("profile", "set", "prod", "--secret-key-command", "pass show mq")
    (prod,) = profiles.load().profiles.values()
    assert (prod.secret_key, prod.secret_key_command) == (None, "pass show mq")
    roquet("profile", "set", "prod", "--access-key", "")
    assert profiles.load().profiles["prod"].secret_key_command is None


def test_show_says_where_each_setting_comes_from(file: Path) -> None:
    assert roquet("profile", "show").output.splitlines()[0] == "no profile is used"
    assert "namesrv  127.0.0.1:9876  default" in roquet("profile", "show").output
    asking = ("--access-key", "alice", "--secret-key-command", "pass show mq")
    roquet("profile", "set", "prod", "-n", "h:1", *asking)
    environ = {"ROQUET_PROFILE": "prod", "NAMESRV_ADDR": "e:1"}
    head, _, *rows = roquet("profile", "show", environ=environ).output.splitlines()
    assert head == f"profile prod, in {file}"
    assert [" ".join(row.split()) for row in rows] == [
        "namesrv e:1 environment NAMESRV_ADDR",
        "access_key alice profile prod",
        "secret_key_command pass show mq profile prod",
    ]
    shown = json.loads(roquet("profile", "show", "prod", "--json", environ=environ).output)
    assert shown["settings"]["namesrv"] == {"value": "h:1", "from": "profile prod"}


def test_wrong_use_says_what_to_do(tmp_path: Path) -> None:
    must_fail(UsageError, "'a b': letters, digits", "profile", "set", "a b", "-n", "h:1")
    must_fail(UsageError, "--namesrv says which cluster", "profile", "set", "prod", "--tls")
    must_fail(UsageError, "HOST:PORT", "profile", "set", "prod", "-n", "nonsense")
    must_fail(UsageError, "there is no file /no/ca", "profile", "set", "p", "-n", "h:1",
              "--tls-ca", "/no/ca")  # fmt: skip
    must_fail(UsageError, "an access key needs its secret", "profile", "set", "p", "-n", "h:1",
              "--access-key", "alice")  # fmt: skip
    must_fail(UsageError, "there is no profile 'prod'", "profile", "use", "prod")
    must_fail(UsageError, "there is no profile 'prod'", "profile", "rm", "prod")
    must_fail(UsageError, "a profile's name, or --none", "profile", "use")


def test_commands_ask_the_cluster_of_a_profile(namesrv: str) -> None:
    roquet("profile", "set", "here", "-n", namesrv)
    assert roquet("cluster", "show", "--profile", "here").exit_code == 0
    assert roquet("cluster", "show", environ={"ROQUET_PROFILE": "here"}).exit_code == 0
    roquet("profile", "use", "here")
    assert "broker-a" in roquet("cluster", "show").output
    assert isinstance(listed_topics(namesrv), list)


def test_names_of_profiles_are_completed(file: Path) -> None:
    for name in ("prod", "preview", "dev"):
        roquet("profile", "set", name, "-n", "h:1")
    assert arguments.complete_profiles("pr") == ["preview", "prod"]
    file.write_text("damaged")
    assert arguments.complete_profiles("pr") == []
    must_fail(ConfigError, "mend the file, or remove it", "topic", "ls")
