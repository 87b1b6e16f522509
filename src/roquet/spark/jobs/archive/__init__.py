"""The archive job: a topic becomes a table, each message once.

archive_job       the run: reads offsets from the table, plans a batch, commits its files
archive_tasks     what workers do: read, parse bodies, write files
archive_columns   the columns for the fields of bodies, inferred or by a schema
status_writer     the status beside the table
"""

from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, main, run, transform

__all__ = ["ArchiveProgress", "Params", "main", "run", "transform"]
