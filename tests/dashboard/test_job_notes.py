import msgspec
from tests.dashboard.pages.test_jobs import row


def test_a_job_without_a_known_retention_has_neither_a_time_nor_an_alert() -> None:
    fields = msgspec.to_builtins(row("lake/orders"))
    assert (fields["overtaken_s"], fields["alert"]) == (None, "")
