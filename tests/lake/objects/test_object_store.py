"""Objects below a location, and one sentence for each way in which a store can refuse."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from tests.lake.conftest import DirectoryObjects

from roquet.lake.objects import object_store
from roquet.lake.objects.object_location import ObjectLocation
from roquet.lake.objects.object_store import (
    ObjectStore,
    StorageFailed,
    dataset_source,
    explained,
    explained_upload,
    explanation,
    file_sizes,
    file_system,
    open_source,
)
from roquet.model.errors import ConfigError

AZURE_URL = "abfss://lake@acme.dfs.core.windows.net/orders"
ORDERS = ObjectLocation("s3://lake/orders", {"AWS_ENDPOINT_URL": "https://s3.there"})


def test_objects_are_listed_with_paths_below_the_location(objects: DirectoryObjects) -> None:
    store = ObjectStore(ORDERS)
    assert store.files() == []
    assert store.names() == set()
    store.put("_roquet/runs/a", b"{}")
    store.put("day=2026-01-31/b", b"rows")
    assert {(each.path, each.size) for each in store.files()} == {
        ("_roquet/runs/a", 2),
        ("day=2026-01-31/b", 4),
    }
    assert [each.path for each in store.files("_roquet/runs", recursive=False)] == [
        "_roquet/runs/a"
    ]
    assert store.names() == {"_roquet", "day=2026-01-31"}
    assert objects.stored() == {"lake/orders/_roquet/runs/a", "lake/orders/day=2026-01-31/b"}


class GoogleObjects:
    """Objects whose lists of one level have no directories, as pyarrow's of Google's store."""

    def __init__(self, objects: DirectoryObjects) -> None:
        self._objects = objects

    def get_file_info(self, wanted: Any) -> Any:
        found = self._objects.get_file_info(wanted)
        if not isinstance(wanted, pafs.FileSelector):
            return found
        return [info for info in found if info.type != pafs.FileType.Directory]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


@pytest.fixture
def google(objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch) -> GoogleObjects:
    """Google's store with the empty bucket `lake`, without a network."""
    fake = GoogleObjects(objects)
    monkeypatch.setattr(object_store, "google_file_system", lambda options: fake)
    return fake


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_directories_are_found_where_lists_have_none(google: GoogleObjects, scheme: str) -> None:
    store = ObjectStore(ObjectLocation(f"{scheme}://lake/orders"))
    assert not store.has_directory("_delta_log")
    store.put("_delta_log/0.json", b"{}")
    store.put("a", b"")
    assert store.has_directory("_delta_log")
    assert not store.has_directory("a")
    assert store.names() == {"_delta_log", "a"}
    store.remove_directory("_delta_log")
    assert [file.path for file in store.files()] == ["a"]


def test_access_to_the_objects_is_enough_at_google(
    google: GoogleObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its roles for objects do not allow to ask for the bucket."""
    ask = google.get_file_info

    def refuses(wanted: Any) -> Any:
        if wanted == "lake":
            raise OSError("google::cloud::Status(PERMISSION_DENIED: storage.buckets.get)")
        return ask(wanted)

    monkeypatch.setattr(google, "get_file_info", refuses)
    ObjectStore(ObjectLocation("gs://lake/orders")).check_bucket()

    def refuses_all(_: object) -> Any:
        raise OSError("google::cloud::Status(PERMISSION_DENIED: storage.objects.list)")

    monkeypatch.setattr(google, "get_file_info", refuses_all)
    with pytest.raises(StorageFailed, match=r"^Google Cloud Storage refuses access to gs://lake"):
        ObjectStore(ObjectLocation("gs://lake/orders")).check_bucket()


def test_an_object_is_removed_once(objects: DirectoryObjects) -> None:
    store = ObjectStore(ORDERS)
    store.put("a", b"")
    store.remove("a")
    store.remove("a")
    assert objects.stored() == set()


def test_a_directory_is_removed_with_all_that_lies_below_it(objects: DirectoryObjects) -> None:
    store = ObjectStore(ObjectLocation("s3://lake/orders"))
    for path in ("keep/a", "gone/b", "gone/below/c"):
        store.put(path, b"{}")
    store.remove_directory("gone")
    assert objects.stored() == {"lake/orders/keep/a"}
    with pytest.raises(FileNotFoundError):
        store.remove_directory("gone")


def test_a_bucket_that_is_not_there_is_an_error(objects: DirectoryObjects) -> None:
    ObjectStore(ORDERS).check_bucket()
    with pytest.raises(ConfigError, match=r"there is no bucket 'sea' at https://s3.there: create"):
        ObjectStore(ObjectLocation("s3://sea/orders", ORDERS.options)).check_bucket()


def test_data_files_are_opened_by_path_or_by_url(objects: DirectoryObjects, tmp_path: Path) -> None:
    ObjectStore(ORDERS).put("a", b"rows")
    with open_source("s3://lake/orders/a", {}) as file:
        assert file.read() == b"rows"
    assert open_source(tmp_path / "a", {}) == tmp_path / "a"
    assert dataset_source("s3://lake/orders/a", {}) == ("lake/orders/a", objects)
    assert dataset_source("/lake/a", {}) == ("/lake/a", None)
    assert file_sizes(["s3://lake/orders/a"], {}) == [4]
    (tmp_path / "a").write_bytes(b"row")
    assert file_sizes([str(tmp_path / "a")], {}) == [3]
    assert file_sizes([], {}) == []


def test_a_data_file_that_is_gone_is_named(objects: DirectoryObjects) -> None:
    with pytest.raises(FileNotFoundError) as error:
        file_sizes(["s3://lake/orders/a"], {})
    assert error.value.filename == "s3://lake/orders/a"


def test_a_file_system_is_made_once_for_the_same_options() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-west-1",
    }
    made = file_system("s3://lake/orders", options)
    assert made is file_system("s3://sea/flights", dict(options))
    assert made.region == "eu-west-1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", "there is no bucket 'lake'"),
        ("AWS Error ACCESS_DENIED during HeadBucket operation", "refuses access"),
        ("Generic S3 error: <Code>InvalidAccessKeyId</Code>", "refuses access"),
        ("Server returned non-2xx status code: 403 Forbidden", "refuses access"),
        ("HTTP status 500 for roquet-a403.parquet and -403-b", "HTTP status 500"),
        ("Error performing PUT in 403.4µs and 7.403ms", "Error performing PUT"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 60, SSL", "has no certificate that is trusted"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 77, CA", "has no certificate that is trusted"),
        ("<Code>ExpiredToken</Code>", "have expired: renew AWS_ACCESS_KEY_ID"),
        ("AWS Error EXPIRED_TOKEN during PutObject operation", "have expired"),
        ("403 Forbidden: <Code>RequestTimeTooSkewed</Code>", "because a clock is wrong: set"),
        ("AWS Error REQUEST_TIME_TOO_SKEWED (HTTP status 403)", "because a clock is wrong: set"),
        (
            "AWS Error UNKNOWN (HTTP status 400) during HeadBucket operation: No response body.",
            "without a reason: check whether AWS_ACCESS_KEY_ID, .* have expired, and AWS_REGION",
        ),
        ("AWS Error UNKNOWN (HTTP status 400) during GetObject operation: ", "without a reason"),
        ("AWS Error UNKNOWN (HTTP status 400) during GetObject operation: Bad", "operation: Bad$"),
        ("<Code>AuthorizationHeaderMalformed</Code>", "in another region than us-east-1"),
        ("AWS Error NETWORK_CONNECTION: curlCode: 7, Couldn't connect", "cannot be reached"),
        ("Generic S3 error: error sending request for url", "cannot be reached"),
        ("AWS Error SLOW_DOWN\nand more lines", "s3://lake/orders: AWS Error SLOW_DOWN: and more"),
        (
            "Generic S3 error\n    \x1b[31m\u21b3\x1b[0m Error performing PUT\n",
            "^s3://lake/orders: Generic S3 error: Error performing PUT$",
        ),
        ("x" * 1_000_000, "^s3://lake/orders: x{300}$"),
        ("", "s3://lake/orders: OSError$"),
    ],
)
def test_errors_of_a_store_are_one_sentence_each(text: str, says: str) -> None:
    with pytest.raises((ConfigError, StorageFailed), match=says) as error, explained(ORDERS):
        raise OSError(text)
    assert "\n" not in str(error.value)
    assert type(error.value) is type(explanation(OSError(text), ORDERS))


@pytest.mark.parametrize(
    ("url", "text", "says"),
    [
        (AZURE_URL, "ContainerNotFound", r"there is no container 'lake' at Azure account acme: "
         r"create it, or check the name$"),
        (AZURE_URL, "403 AuthorizationFailure", "refuses .* check AZURE_STORAGE_ACCOUNT_KEY"),
        (AZURE_URL, "error sending request", r"Azure account acme cannot be reached .*check the"),
        (AZURE_URL, "curlCode: 60", "is trusted here, .*: check the certificates of this machine$"),
        (AZURE_URL, "500 for url (https://a/b?sv=2&sig=hunter2%3D&se=1) AccountKey=hunter2;",
         r"500 for url \(https://a/b\?sv=2&sig=…&se=1\) AccountKey=…;$"),
        ("gs://lake/orders", "PERMISSION_DENIED", "check GOOGLE_APPLICATION_CREDENTIALS of the"),
        ("gs://lake/orders", "401 Unauthorized", "check GOOGLE_APPLICATION_CREDENTIALS of the"),
        ("gs://lake/orders", "Could not create a OAuth2 access token", "there is no access token"),
        ("gs://lake/orders", "UNAVAILABLE: CURL error [7]=Could", "be reached .*: check the netw"),
        ("gs://lake/orders", "UNAVAILABLE: CURL error [60]=SSL", "is trusted here, .*: check the"),
        ("gs://lake/orders", "The specified bucket does not exist", "at Google Cloud Storage"),
    ],
)  # fmt: skip
def test_errors_of_other_stores_have_their_names(url: str, text: str, says: str) -> None:
    location = ObjectLocation(url, {"AZURE_STORAGE_ACCOUNT_NAME": "acme"})
    assert re.search(says, str(explanation(OSError(text), location)))


def test_an_emulator_of_google_is_named_in_errors() -> None:
    place = ObjectLocation("gs://lake/orders", {"STORAGE_EMULATOR_HOST": "http://h:1"})
    text = str(explanation(OSError("UNAVAILABLE: CURL error [7]"), place))
    assert text == (
        "http://h:1 cannot be reached for gs://lake/orders: check STORAGE_EMULATOR_HOST and the "
        "network"
    )


def test_wrong_credentials_of_google_are_no_oserror_of_pyarrow() -> None:
    place = ObjectLocation("gs://lake/orders")
    with pytest.raises(StorageFailed, match="no access token for gs://lake"), explained(place):
        raise pa.ArrowException(
            "google::cloud::Status(UNKNOWN: Could not create a OAuth2 access token: /key.json"
        )
    with pytest.raises(pa.ArrowInvalid), explained(place):
        raise pa.ArrowInvalid("Parquet magic bytes not found")


def test_a_missing_object_of_an_upload_is_an_error_of_the_store() -> None:
    with pytest.raises(ConfigError, match="no bucket 'lake'"), explained_upload(ORDERS):
        raise FileNotFoundError(2, "The specified bucket does not exist.")


def test_a_missing_object_stays_what_it_is() -> None:
    with pytest.raises(FileNotFoundError), explained(ORDERS):
        raise FileNotFoundError(2, "no such object")


def test_errors_of_data_files_are_a_sentence(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError("AWS Error ACCESS_DENIED during HeadObject operation")

    for name in ("open_input_file", "get_file_info"):
        monkeypatch.setattr(objects, name, refuse, raising=False)
    with pytest.raises(StorageFailed, match="refuses access to s3://lake/orders/a"):
        open_source("s3://lake/orders/a", {})
    with pytest.raises(StorageFailed, match="refuses access to s3://lake/orders/a"):
        file_sizes(["s3://lake/orders/a"], {})
