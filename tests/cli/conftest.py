from collections.abc import Iterator

import pytest

from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name servers of a cluster, with the settings in the module's CLUSTER."""
    with BlockingCluster(**getattr(request.module, "CLUSTER", {})) as cluster:
        yield cluster.namesrv_addr
