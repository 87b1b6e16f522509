"""Tables that archives fill: Parquet directories, Delta and Iceberg, each with its commit."""
