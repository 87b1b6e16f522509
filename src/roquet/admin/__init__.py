"""Admin API: what operators ask of a cluster and change in it, as plain async functions by noun."""
