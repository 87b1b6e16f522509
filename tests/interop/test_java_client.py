"""The genuine Java client, the newest and the last 4.x, against our broker."""

from pathlib import Path

import pytest

from harness import genuine

pytestmark = pytest.mark.interop
PROGRAM = str(Path(__file__).with_name("RoundTrip.java"))


@pytest.mark.parametrize("version", [genuine.VERSION, "4.9.7"])
def test_the_java_client_sends_consumes_by_tag_and_queries_by_key(
    java: None, ours: str, tmp_path: Path, version: str
) -> None:
    command = ["java", "-cp", f"{genuine.client_jars(version)}/*", PROGRAM, ours, "JavaTopic"]
    lines = genuine.run(command, seconds=180, home=tmp_path / "h").splitlines()
    assert [line for line in lines if line.startswith("sent")] == ["sent SEND_OK"] * 20
    assert "batch SEND_OK" in lines
    assert "big SEND_OK" in lines
    assert "enough true" in lines
    seen = {line.split()[1] for line in lines if line.startswith("seen")}
    assert seen == {f"key{n}" for n in range(0, 20, 2)} | {f"key{n}" for n in range(20, 30)} | {
        "big"
    }
    assert "query body 7" in lines
