"""Journals: small records that change in place, in a directory or an object store, and leases.

journal             the interface of both, and a file for each record
object_journal      a Delta table, changed by compare-and-set
object_lease        one process at a time works with a journal of an object store
"""
