"""Archives in Azure's object store, by its emulator Azurite; skipped where there is none."""

import pytest
from tests.spark_suite.object_archive import AZURE_KEY, Archive, in_azure

from roquet.lake.objects.cloud_file_systems import azure_file_system
from roquet.lake.objects.object_store import StorageFailed

pytest_plugins = ["tests.spark_suite.object_archive"]
pytestmark = pytest.mark.spark_suite


@in_azure
def test_a_wrong_key_is_a_sentence(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.replace("E", "F", 1))
    azure_file_system.cache_clear()
    with pytest.raises(StorageFailed, match=r"refuses access to abfss://lake@.* check AZURE_STORA"):
        archive.run()
    azure_file_system.cache_clear()
