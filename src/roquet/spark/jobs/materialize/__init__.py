"""The materialize job: a topic of keyed changes becomes a table of the latest state.

materialize_job      the run: plans a batch, merges it and commits state and offsets together
materialize_tasks    reads changes, and rewrites the buckets that they touch
"""

from roquet.spark.jobs.materialize.materialize_job import MaterializeProgress, Params, main, run

__all__ = ["MaterializeProgress", "Params", "main", "run"]
