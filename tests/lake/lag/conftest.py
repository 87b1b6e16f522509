"""The topic of the tests of Spark's jobs."""

from tests.spark.jobs.conftest import topic  # noqa: F401 - fixtures
