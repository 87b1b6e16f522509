"""Audits: a table compared with its topic and with a producer's own counts.

file_summary    counts the offsets, rows and hours in files of the table
findings        missing, lost, duplicate and unknown offsets of each queue
hourly_counts   a producer's counts by hour
duplicate_rows  locates rows of our sink that were sent more than once
audit_report    the report; audit_page shows it as HTML
"""
