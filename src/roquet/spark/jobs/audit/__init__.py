"""The audit job: a table compared with its topic and with a producer's own counts.

audit_job       the run: reads files and asks brokers, then compares
file_summary    counts the offsets, rows and hours in files of the table
hourly_counts   counts by hour: of the topic, and of the producer
findings        missing, lost, duplicate and unknown offsets of each queue
duplicate_rows  locates rows of our sink that were sent more than once
audit_report    the report; audit_page shows it as HTML
"""

from roquet.spark.jobs.audit.audit_job import AuditProgress, Params, main, run, transform

__all__ = ["AuditProgress", "Params", "main", "run", "transform"]
