"""Locations in object stores: what a URL and its options may be, and that no secret is in them."""

import pickle

import pytest

from roquet.lake.objects.object_location import (
    AZURE,
    GOOGLE,
    PROVIDERS,
    S3,
    ObjectLocation,
    is_object_url,
    key_of,
    parse_location,
    storage_options,
)
from roquet.model.errors import ConfigError

CREDENTIALS = sorted({name for each in PROVIDERS.values() for name in each.credentials})
AZURE_URL = "abfss://lake@acme.dfs.core.windows.net/orders"
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"

ENDPOINT = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ALLOW_HTTP": "true"}


def test_a_url_names_a_bucket_and_a_path() -> None:
    location = parse_location("s3://lake/orders/today/", {}, {})
    assert location == ObjectLocation("s3://lake/orders/today")
    assert (location.bucket, location.key) == ("lake", "lake/orders/today")
    assert location.file("day=2026-01-31/a.parquet").endswith("today/day=2026-01-31/a.parquet")
    assert str(location) == "s3://lake/orders/today"


def test_the_scheme_of_hadoop_is_the_same_store() -> None:
    assert parse_location("s3a://lake/orders", {}, {}).url == "s3://lake/orders"


@pytest.mark.parametrize("target", ["/lake", "lake", "file:///lake", "C://lake", "lake/a:b"])
def test_directories_are_no_object_stores(target: str) -> None:
    assert not is_object_url(target)


@pytest.mark.parametrize("target", ["s3://lake/orders", "gs://lake/orders", "hdfs://name/lake"])
def test_other_urls_are_taken_for_object_stores(target: str) -> None:
    assert is_object_url(target)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("hdfs://lake/orders", "hdfs:// is none of these"),
        ("gs://Lake/orders", "is not gs://BUCKET/PATH"),
        ("abfss://Lake@acme.dfs.core.windows.net/a", "is not abfss://CONTAINER@ACCOUNT"),
        ("abfss://lake@acme.example.com/a", "is not abfss://CONTAINER@ACCOUNT"),
        ("abfss://lake/a", "names no account"),
        ("abfss://lake@acme.dfs.core.windows.net", "the path of a table"),
        ("s3://Lake/orders", "is not s3://BUCKET/PATH"),
        ("s3:///orders", "is not s3://BUCKET/PATH"),
        ("s3://lake/orders?versionId=3", "is not s3://BUCKET/PATH"),
        ("s3://lake", "the path of a table"),
        ("s3://lake/a//b", "the path of a table"),
        ("s3://lake/a/../b", "the path of a table"),
        ("s3://lake/orders of today", "the path of a table"),
        ("s3://lake/auftr%C3%A4ge", "the path of a table"),
    ],
)
def test_a_url_that_is_no_place_for_a_table_is_an_error(target: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as error:
        parse_location(target, {}, {})
    assert says in str(error.value)


def test_an_error_about_a_password_does_not_repeat_it() -> None:
    with pytest.raises(ConfigError, match="leave it out") as error:
        parse_location("s3://AKIA:hunter2@lake/orders", {}, {})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "target",
    [
        "s3://AKIA:hunter2/DEF@lake/orders",
        "s3://lake/orders?X-Amz-Signature=hunter2",
        "s3://lake/orders#hunter2",
        "s3://lake:hunter2/orders",
        "s3://[hunter2",
        "abfss://c@hunter2/orders",
    ],
)
def test_a_url_that_may_hold_a_secret_is_not_repeated(target: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_location(target, {}, {})
    assert "hunter2" not in str(error.value)


def test_a_container_of_azure_is_no_password() -> None:
    location = parse_location(AZURE_URL, {}, {})
    assert location == ObjectLocation(AZURE_URL, {ACCOUNT: "acme"})
    assert (location.bucket, location.key) == ("lake", "lake/orders")
    assert (location.provider, location.server) == (AZURE, "Azure account acme")
    assert (
        key_of(location.file("day=2026-01-31/a.parquet")) == "lake/orders/day=2026-01-31/a.parquet"
    )


@pytest.mark.parametrize(
    ("target", "storage", "environ"),
    [
        ("abfs://lake@acme.dfs.core.windows.net/orders/", {}, {}),
        ("abfss://lake@acme.blob.core.windows.net/orders", {}, {ACCOUNT: "other"}),
        ("abfss://lake/orders", {ACCOUNT: "acme"}, {ACCOUNT: "other"}),
        ("abfss://lake/orders", {}, {"AZURE_STORAGE_ACCOUNT": "acme"}),
    ],
)
def test_urls_of_azure_are_written_in_one_way(
    target: str, storage: dict[str, str], environ: dict[str, str]
) -> None:
    assert parse_location(target, storage, environ) == ObjectLocation(AZURE_URL, {ACCOUNT: "acme"})


def test_a_bucket_of_google_needs_no_options() -> None:
    for target in ("gs://lake_1/orders", "gcs://lake_1/orders"):
        location = parse_location(target, {}, {"AWS_REGION": "eu-west-1"})
        assert location == ObjectLocation("gs://lake_1/orders")
        assert (location.provider, location.server) == (GOOGLE, "Google Cloud Storage")
    assert ObjectLocation("s3://lake/orders").provider is S3


@pytest.mark.parametrize(
    ("storage", "environ"),
    [
        ({"STORAGE_EMULATOR_HOST": "http://127.0.0.1:4443"}, {"STORAGE_EMULATOR_HOST": "there:1"}),
        ({"storage_emulator_host": "http://127.0.0.1:4443/"}, {}),
        ({}, {"STORAGE_EMULATOR_HOST": "127.0.0.1:4443"}),
        ({}, {"CLOUD_STORAGE_EMULATOR_ENDPOINT": "http://127.0.0.1:4443"}),
    ],
)
def test_an_emulator_of_google_has_one_name(
    storage: dict[str, str], environ: dict[str, str]
) -> None:
    location = parse_location("gs://lake/orders", storage, environ)
    url = "http://127.0.0.1:4443"
    assert location.options == {"STORAGE_EMULATOR_HOST": url}
    assert (location.endpoint, location.server) == (url, url)
    assert not parse_location("s3://lake/orders", {}, environ).endpoint


@pytest.mark.parametrize("address", ["u:hunter2@h:1", "http://h/hunter2", "ftp://hunter2", ":1"])
def test_an_address_of_an_emulator_that_cannot_be_used_is_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^STORAGE_EMULATOR_HOST") as error:
        storage_options({"STORAGE_EMULATOR_HOST": address}, {}, GOOGLE)
    assert "hunter2" not in str(error.value)


def test_options_are_those_of_the_store() -> None:
    with pytest.raises(ConfigError, match=r"no storage option 'AWS_REGION' of abfss://"):
        parse_location(AZURE_URL, {"AWS_REGION": "eu-west-1"}, {})
    with pytest.raises(ConfigError, match=r"no storage option 'AWS_ENDPOINT_URL' of gs://"):
        parse_location("gs://lake/orders", {"AWS_ENDPOINT_URL": "https://there"}, {})


@pytest.mark.parametrize(
    "endpoint",
    ["https://u:hunter2/w@h", "https://h?sig=hunter2", "https://h#hunter2", "https://[hunter2"],
)
def test_an_endpoint_that_may_hold_a_secret_is_refused_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(ConfigError) as error:
        storage_options({"AWS_ENDPOINT_URL": endpoint}, {})
    assert "hunter2" not in str(error.value)


def test_options_come_from_the_user_and_then_from_the_environment() -> None:
    environ = {**ENDPOINT, "AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": ""}
    assert storage_options({}, environ) == {**ENDPOINT, "AWS_REGION": "eu-west-1"}
    assert storage_options({"aws_region": "us-west-2"}, environ)["AWS_REGION"] == "us-west-2"


def test_an_endpoint_for_s3_alone_goes_before_the_general_one() -> None:
    environ = {"AWS_ENDPOINT_URL_S3": "https://s3", "AWS_ENDPOINT_URL": "https://all"}
    assert storage_options({}, environ) == {"AWS_ENDPOINT_URL": "https://s3"}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credentials_are_no_options(name: str) -> None:
    with pytest.raises(ConfigError, match=f"set {name} in the environment") as error:
        storage_options({name: "hunter2"}, {})
    assert "hunter2" not in str(error.value)


def test_credentials_of_the_environment_do_not_travel() -> None:
    environ = {**ENDPOINT, **dict.fromkeys(CREDENTIALS, "hunter2")}
    location = parse_location("s3://lake/orders", {}, environ)
    assert "hunter2" not in repr(location)
    assert b"hunter2" not in pickle.dumps(location)


def test_a_misspelt_option_is_an_error_with_the_right_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'AWS_ENDPOINT_URL'"):
        storage_options({"AWS_ENDPOINT": "https://s3"}, {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, "set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, "is not http://HOST:PORT"),
        ({"AWS_ENDPOINT_URL": "ftp://there"}, "is not http://HOST:PORT"),
        ({"AWS_ENDPOINT_URL": "https://there/lake"}, "is not http://HOST:PORT"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_an_error(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        storage_options(options, {})


def test_an_endpoint_with_a_password_is_an_error_that_does_not_repeat_it() -> None:
    with pytest.raises(ConfigError, match="holds a user or a password") as error:
        storage_options({"AWS_ENDPOINT_URL": "https://me:hunter2@there"}, {})
    assert "hunter2" not in str(error.value)
