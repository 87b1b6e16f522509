"""JSON of Java's fastjson library: read tolerantly, written as Java writes it."""
