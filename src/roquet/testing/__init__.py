"""Testing: clusters, virtual time and a network in memory, for tests."""
