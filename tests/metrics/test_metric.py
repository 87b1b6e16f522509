from roquet.metrics.metric import BROKER, SERVERS, MetricType, counter, gauge, histogram


def test_a_metric_is_defined_by_its_type_labels_and_bounds() -> None:
    assert counter("a_total", "A.", "topic").type is MetricType.COUNTER
    assert gauge("b", "B.", nodes=SERVERS).nodes == SERVERS
    sizes = histogram("c", "C.", "topic", "type", bounds=(1, 2))
    assert (sizes.type, sizes.labels, sizes.bounds) == ("histogram", ("topic", "type"), (1, 2))
    assert sizes.nodes == BROKER
