import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.cli.terminal import profiles
from roquet.cli.terminal.profiles import Profile, ProfileFile, choose, profile_environment
from roquet.model.errors import ConfigError, ConnectFailed, UsageError

PROD = Profile(namesrv="prod:9876", tls_ca="/ca.pem", access_key="alice", secret_key="s3cret")
DEV = Profile(namesrv="dev:9876")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "config" / "profiles.json"
    monkeypatch.setattr(profiles, "path", lambda: place)
    for name in ("ROQUET_PROFILE", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    profiles.save(ProfileFile(current="dev", profiles={"prod": PROD, "dev": DEV}))
    return place


def address(option: str | None, namesrv: str | None, **environ: str) -> str | None:
    return choose(option, namesrv, environ).environ.get("NAMESRV_ADDR")


def test_the_option_is_before_the_environment_which_is_before_the_current_one() -> None:
    assert address("prod", None, NAMESRV_ADDR="e:1", ROQUET_PROFILE="dev") == "prod:9876"
    assert address(None, None, NAMESRV_ADDR="e:1") == "e:1"
    assert address(None, None, NAMESRV_ADDR="e:1", ROQUET_PROFILE="prod") == "e:1"
    assert address(None, None, ROQUET_PROFILE="prod") == "prod:9876"
    assert address(None, None) == "dev:9876"


def test_the_current_profile_gives_nothing_to_a_cluster_that_was_named_otherwise(
    file: Path,
) -> None:
    profiles.save(ProfileFile(current="prod", profiles={"prod": PROD}))
    assert choose(None, "other:1", {}).environ == {}
    assert choose(None, None, {"NAMESRV_ADDR": "other:1"}).sources == {}
    file.write_text("damaged")
    assert choose(None, "other:1", {}).name is None, "its file is not even read"


def test_keys_and_tls_settings_are_taken_whole_from_one_place() -> None:
    theirs = {"ROCKETMQ_ACCESS_KEY": "bob", "ROCKETMQ_SECRET_KEY": "x", "ROCKETMQ_TLS": "false"}
    kept = choose(None, None, {**theirs, "ROQUET_PROFILE": "prod"})
    assert {key: kept.environ.get(key) for key in theirs} == theirs
    assert "ROCKETMQ_TLS_CA" not in kept.environ
    assert [*kept.sources] == ["NAMESRV_ADDR"]
    with_token = {**theirs, "ROCKETMQ_SECURITY_TOKEN": "t"}
    replaced = choose("prod", None, with_token).environ
    assert replaced == {
        "NAMESRV_ADDR": "prod:9876",
        "ROCKETMQ_TLS_CA": "/ca.pem",
        "ROCKETMQ_ACCESS_KEY": "alice",
        "ROCKETMQ_SECRET_KEY": "s3cret",
    }
    assert choose("dev", None, theirs).environ == {**theirs, "NAMESRV_ADDR": "dev:9876"}


def test_an_unknown_profile_is_wrong_use_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="no profile 'pord'; did you mean 'prod'"):
        choose("pord", None, {})
    with pytest.raises(UsageError, match="no profile 'x'; `roquet profile set` makes one"):
        choose(None, None, {"ROQUET_PROFILE": "x"})


def test_the_environment_is_that_of_the_profile_for_as_long_as_a_command_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "bob")
    before = dict(os.environ)
    with profile_environment("prod", None):
        assert os.environ["NAMESRV_ADDR"] == "prod:9876"
        assert (os.environ["ROCKETMQ_ACCESS_KEY"], os.environ["ROCKETMQ_SECRET_KEY"]) == (
            "alice", "s3cret",
        )  # fmt: skip
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("option", "namesrv", "origin"),
    [
        ("prod", None, "\nthe name servers are those of profile prod, in "),
        (None, "other:1", ""),
        (None, None, "\nthe name servers are those of profile dev, in "),
    ],
)
def test_an_error_says_where_the_name_servers_come_from(
    option: str | None, namesrv: str | None, origin: str
) -> None:
    with pytest.raises(ConnectFailed) as raised, profile_environment(option, namesrv):
        raise ConnectFailed("nobody is there")
    assert str(raised.value).startswith(f"nobody is there{origin}")
    assert bool(origin) is ("\n" in str(raised.value))


def test_an_error_without_any_address_says_how_to_give_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.unlink()
    with pytest.raises(ConnectFailed, match="no --namesrv"), profile_environment(None, None):
        raise ConnectFailed("nobody is there")
    monkeypatch.setenv("NAMESRV_ADDR", "e:1")
    with pytest.raises(ConnectFailed, match="of NAMESRV_ADDR"), profile_environment(None, None):
        raise ConnectFailed("nobody is there")


@pytest.mark.parametrize(
    "text", ["{", '{"profiles": {"x": 1}}', '{"profiles": {"x": {}}}', '{"other": 1}', "\xff"]
)
def test_a_damaged_file_is_an_error_that_names_it(file: Path, text: str) -> None:
    file.write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=r"profiles\.json: .*; mend the file, or remove it"):
        profiles.load()


def test_the_file_and_its_directory_are_private(file: Path) -> None:
    file.chmod(0o644)
    file.with_suffix(".new").write_text("of a run that was killed")
    profiles.save(ProfileFile(profiles={"prod": PROD}))
    if sys.platform != "win32":
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert profiles.load() == ProfileFile(profiles={"prod": PROD})
    assert [*file.parent.iterdir()] == [file]


def test_a_secret_may_be_in_a_file_or_come_from_a_command(tmp_path: Path) -> None:
    place = tmp_path / "secret"
    place.write_text("from-file\nmore\n")
    assert Profile(namesrv="h:1", secret_key_file=str(place)).secret() == "from-file"
    shown = f"{sys.executable} -c \"print('from command')\""
    assert Profile(namesrv="h:1", secret_key_command=shown).secret() == "from command"
    assert PROD.secret() == "s3cret"
    for command in (f"{sys.executable} -c 'exit(3)'", "no-such-command", "'", " "):
        with pytest.raises(ConfigError, match="secret_key_command: "):
            Profile(namesrv="h:1", secret_key_command=command).secret()


def test_a_command_is_run_only_where_its_secret_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Profile(namesrv="h:1", access_key="alice", secret_key_command="no-such-command")
    profiles.save(ProfileFile(profiles={"asking": asking}))
    monkeypatch.setenv("ROQUET_PROFILE", "asking")
    with (
        pytest.raises(ConfigError, match="needs a command"),
        profile_environment(None, None, may_run=False),
    ):
        pass
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "bob")
    with profile_environment(None, None):
        assert os.environ["ROCKETMQ_ACCESS_KEY"] == "bob"


def test_a_secret_that_is_empty_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    empty = Profile(namesrv="h:1", access_key="a", secret_key_file=str(tmp_path / "empty"))
    profiles.save(ProfileFile(profiles={"empty": empty}))
    with (
        pytest.raises(UsageError, match="the first line is empty"),
        profile_environment("empty", None),
    ):
        pass


def test_a_secret_that_is_no_text_is_an_error_without_it(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"s3cr\xff\n")
    own = {"namesrv": "h:1", "access_key": "a"}
    binary = Profile(**own, secret_key_file=str(tmp_path / "binary"))
    profiles.save(ProfileFile(profiles={"binary": binary, "nul": Profile(**own, secret_key="s\0")}))
    before = dict(os.environ)
    for name, error in (("binary", "no UTF-8"), ("nul", "ROCKETMQ_SECRET_KEY: its value")):
        with (
            pytest.raises((ConfigError, UsageError), match=error) as raised,
            profile_environment(name, None),
        ):
            pass
        assert "s3cr" not in str(raised.value).replace(str(tmp_path), "")
    assert dict(os.environ) == before


VARIABLES = [name for group in profiles.GROUPS for name in group.values()]


@given(
    st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(["", "theirs"])),
    st.sampled_from([None, "prod", "dev"]),
    st.sampled_from([None, "h:1"]),
)
def test_no_group_is_ever_mixed(
    environ: dict[str, str], option: str | None, namesrv: str | None
) -> None:
    choice = choose(option, namesrv, environ)
    for group in profiles.GROUPS:
        own = {name in choice.sources for name in group.values() if choice.environ.get(name)}
        assert len(own) <= 1
