import json
import tarfile
from pathlib import Path

from typer.testing import CliRunner

from roquet.cli.main import app


def test_a_bundle_is_one_private_file(tmp_path: Path) -> None:
    log, archive = tmp_path / "broker.log", tmp_path / "bundle.tar.gz"
    log.write_text("a line\n")
    command = ["support", "bundle", str(archive), "--log", str(log), "--data", str(tmp_path / "no")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert f"{archive}: " in result.output
    assert "left out: " in result.output
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        assert "roquet-support/logs/broker.log" in packed.getnames()
    facts = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert "logs/broker.log" in facts["files"]
    assert len(facts["faults"]) == 1
