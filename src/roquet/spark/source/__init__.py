"""The source: topics and store files read by Spark, as batches and as streams.

data_source       the name that Spark knows; hands out the readers
batch             one range of each queue, narrowed by a query's conditions
stream            ranges that follow one another; trigger_limits bounds each
plan              ranges to partitions, pure
tasks             checks before a read begins, and what one Spark task reads
store_files       commit-log files read in place; log_splits cuts them for tasks
"""

from roquet.spark.versions import require_pyspark

require_pyspark()
