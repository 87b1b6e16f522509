"""Commands on tables without Spark: roquet lake query."""
