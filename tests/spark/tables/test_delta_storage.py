"""How deltalake reaches a log: safe commits whatever the environment says, and readable errors."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from roquet.model.errors import ConfigError
from roquet.spark.tables.delta_storage import check_free, explained_log, log_options
from roquet.spark.tables.object_location import ObjectLocation
from roquet.spark.tables.object_store import ObjectStore, StorageFailed

if TYPE_CHECKING:
    from tests.spark.tables.conftest import DirectoryObjects

ORDERS = ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"})


def test_commits_are_conditional_requests_whatever_the_environment_says() -> None:
    assert log_options(Path("/lake")) is None
    assert log_options(ORDERS) == {
        "AWS_REGION": "eu-west-1",
        "AWS_CONDITIONAL_PUT": "etag",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
    }


def test_a_path_with_the_files_of_others_is_left_alone(objects: "DirectoryObjects") -> None:
    store = ObjectStore(ORDERS)
    check_free(ORDERS)
    store.put("_roquet/runs/a", b"{}")
    check_free(ORDERS)
    store.put("theirs.csv", b"")
    with pytest.raises(ConfigError, match="is not empty and no archive of kind delta"):
        check_free(ORDERS)
    store.put("_delta_log/00000000000000000000.json", b"")
    check_free(ORDERS)


@pytest.mark.parametrize("error", [OSError("AWS Error SLOW_DOWN"), DeltaError("SLOW_DOWN")])
def test_errors_of_an_object_store_are_a_sentence(error: Exception) -> None:
    with pytest.raises(StorageFailed, match="SLOW_DOWN"), explained_log(ORDERS):
        raise error
    with pytest.raises(type(error)), explained_log(Path("/lake")):
        raise error


def test_a_refused_commit_is_no_error_of_the_store() -> None:
    with pytest.raises(CommitFailedError), explained_log(ORDERS):
        raise CommitFailedError("another came first")
