"""Jobs on Spark: each a pure transform, and a main that reads and writes."""
