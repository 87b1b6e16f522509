"""Testing: clusters, virtual time, a network in memory and a simulator, for tests."""
