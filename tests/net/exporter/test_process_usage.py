from roquet.net.exporter.process_usage import process_usage


def test_a_process_that_works_uses_the_processor() -> None:
    before = process_usage()
    sum(range(3_000_000))
    after = process_usage()
    assert after.cpu_s >= before.cpu_s > 0
    assert after.minor_faults is None or after.minor_faults > 0
