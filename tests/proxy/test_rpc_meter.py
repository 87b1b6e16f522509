"""Times of requests on the page of metrics."""

from tests.metrics.prometheus_text import parsed

from roquet.metrics.text_format import MetricsPage
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.rpc_meter import RpcMeter
from roquet.testing.clock import this_loop


async def test_requests_are_timed_by_method_and_code() -> None:
    clock = this_loop().clock
    meter, page = RpcMeter(clock), MetricsPage({})
    begun_ms = meter.now_ms()
    await clock.sleep(30)
    meter.note("SendMessage", pb.OK, begun_ms)
    meter.note("SendMessage", pb.OK, meter.now_ms())
    meter.note("SendMessage", pb.TOPIC_NOT_FOUND, begun_ms)
    meter.add_to(page)
    found = parsed(b"".join(page.chunks()).decode())
    sums = {
        value.labels["code"]: value.value for value in found.values if value.name.endswith("_sum")
    }
    assert sums == {"OK": 0.03, "TOPIC_NOT_FOUND": 0.03}
