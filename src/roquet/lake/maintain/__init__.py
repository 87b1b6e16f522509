"""Maintenance of archives: old days, small files, body columns, older versions.

maintenance   the run: a plan in numbers, or its steps
compaction    merges small files of a partition into large ones
refill        fills body columns for rows that are older than the column
"""
