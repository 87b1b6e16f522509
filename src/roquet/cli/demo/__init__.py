"""roquet demo: flights from a file through brokers and Spark to a table, with nothing lost."""
