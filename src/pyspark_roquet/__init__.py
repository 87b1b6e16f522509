"""Hands Roquet to Spark, which imports every `pyspark_*` package and registers its DefaultSource.

An error here would hide every such source of the environment, other people's too; so where a
package of the `spark` extra is missing there is a warning and no DefaultSource.
"""

import logging

try:
    from roquet.spark.versions import require_spark

    require_spark()
    from roquet.spark.source.data_source import RoquetDataSource as DefaultSource
except ImportError as error:
    logging.getLogger(__name__).warning("Spark cannot use Roquet (roquet[spark]): %s", error)
else:
    __all__ = ["DefaultSource"]
