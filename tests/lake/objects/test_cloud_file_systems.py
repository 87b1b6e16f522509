"""How pyarrow reaches Azure and Google: names of options and of the environment, nothing else."""

from datetime import timedelta

import pyarrow.fs as pafs
import pytest

from roquet.lake.objects.cloud_file_systems import (
    azure_arguments,
    azure_file_system,
    google_arguments,
    google_file_system,
)
from roquet.lake.objects.object_store import file_system
from roquet.model.errors import ConfigError

ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "acme"}
AZURE_URL = "abfss://lake@acme.dfs.core.windows.net/orders"
EMULATOR = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:4443"}
LIMIT = {"retry_time_limit": timedelta(seconds=30)}


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    azure_file_system.cache_clear()
    google_file_system.cache_clear()


@pytest.mark.parametrize(
    ("environ", "arguments"),
    [
        ({}, {}),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}, {"account_key": "a2V5"}),
        ({"AZURE_STORAGE_ACCESS_KEY": "a2V5"}, {"account_key": "a2V5"}),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=2"}, {"sas_token": "?sv=1&sig=2"}),
        ({"AZURE_STORAGE_SAS_KEY": "?sv=1&sig=2"}, {"sas_token": "?sv=1&sig=2"}),
        (
            {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5", "AZURE_STORAGE_SAS_TOKEN": "sv=1"},
            {"account_key": "a2V5"},
        ),
        ({"AZURE_STORAGE_ACCOUNT_KEY": ""}, {}),
    ],
)
def test_a_key_or_a_token_comes_from_the_environment(
    environ: dict[str, str], arguments: dict[str, str]
) -> None:
    assert azure_arguments(ACCOUNT, environ) == {"account_name": "acme", **arguments}


def test_the_emulator_has_an_address_of_its_own() -> None:
    options = {**ACCOUNT, "AZURE_STORAGE_USE_EMULATOR": "true"}
    assert azure_arguments(options, {}) == {
        "account_name": "acme",
        "blob_storage_authority": "127.0.0.1:10000",
        "blob_storage_scheme": "http",
        "dfs_storage_authority": "127.0.0.1:10000",
        "dfs_storage_scheme": "http",
    }


def test_an_emulator_of_google_gets_no_credentials() -> None:
    assert google_arguments({}, {}) == LIMIT
    assert google_arguments(EMULATOR, {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"}) == {
        **LIMIT,
        "anonymous": True,
        "scheme": "http",
        "endpoint_override": "127.0.0.1:4443",
    }


def test_pyarrows_own_name_of_an_emulator_has_to_be_the_same() -> None:
    name = "CLOUD_STORAGE_EMULATOR_ENDPOINT"
    assert google_arguments(EMULATOR, {name: "127.0.0.1:4443/"}) == google_arguments(EMULATOR, {})
    for options in ({}, EMULATOR):
        with pytest.raises(ConfigError, match=rf"^{name} in the environment is not STORAGE_EMUL"):
            google_arguments(options, {name: "http://127.0.0.1:4444"})


def test_the_scheme_of_a_url_chooses_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("AzureFileSystem", "GcsFileSystem"):
        monkeypatch.setattr(
            pafs, name, lambda name=name, **arguments: made.append((name, arguments)), raising=False
        )
    for variable in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    file_system(AZURE_URL, ACCOUNT)
    file_system("gs://lake/orders", {})
    assert made == [("AzureFileSystem", {"account_name": "acme"}), ("GcsFileSystem", LIMIT)]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (AZURE_URL, "has no AzureFileSystem: abfss:// needs one"),
        ("gs://lake/orders", "has no GcsFileSystem: gs:// needs one"),
    ],
)
def test_a_pyarrow_without_the_file_system_is_an_error(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AzureFileSystem", "GcsFileSystem"):
        monkeypatch.delattr(pafs, name, raising=False)
    with pytest.raises(ConfigError, match=says):
        file_system(url, ACCOUNT)
