"""Mirror: topics of one cluster copied into another, and progress of groups translated."""
