"""Where archives of letters lie: under names that every library spells alike."""

from pathlib import Path

from roquet.lake.objects.object_location import ObjectLocation, parse_location
from roquet.spark.jobs.repair.letter_table import archive_location


def test_an_archive_of_a_directory_has_the_quoted_name_of_its_topic() -> None:
    where = archive_location(Path("/lake"), "%DLQ%billing")
    assert where == Path("/lake/raw/@25DLQ@25billing")


def test_an_archive_of_an_object_store_has_a_path_that_is_accepted() -> None:
    root = ObjectLocation("s3://lake/letters", {"AWS_REGION": "eu-west-1"})
    topics = ("%DLQ%billing", "%RETRY%billing_orders", "%DLQ%a|b", "%DLQ%a")
    made = [archive_location(root, topic) for topic in topics]
    assert str(made[0]) == "s3://lake/letters/raw/@25DLQ@25billing"
    assert len({*map(str, made)}) == len(topics)
    for where in made:
        assert parse_location(str(where), root.options, {}) == where
