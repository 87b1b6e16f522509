"""Journals: small records that change in place in an object store, and leases on them."""
