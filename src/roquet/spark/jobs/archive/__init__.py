"""The archive job: a topic becomes a table, each message once.

archive_job    the run: reads offsets from the table, plans a batch, commits its files
compaction     merges small files of a day into large ones
"""

from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, main, run, transform

__all__ = ["ArchiveProgress", "Params", "main", "run", "transform"]
