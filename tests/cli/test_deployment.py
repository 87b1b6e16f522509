"""Units for systemd and the container file: what they start exists, as they say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_documented_commands import problem

import container_steps
from roquet.broker.settings.definitions import SETTINGS
from wheels import build_wheel

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
UNITS = sorted((DEPLOY / "systemd").iterdir())
CONTAINER = CONTAINERFILE.read_text("utf-8")


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name
)
def test_a_unit_starts_a_command_that_there_is_without_privileges(unit: Path) -> None:
    text = unit.read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=\S+/(roquet .*)$", text, re.MULTILINE)
    assert problem(command) is None
    for line in ("User=roquet", "NoNewPrivileges=yes", "ProtectSystem=strict", "UMask=0077"):
        assert f"\n{line}\n" in text
    assert "Type=notify" in text or "Type=oneshot" in text


def test_a_broker_that_recovers_for_long_is_not_killed() -> None:
    text = (DEPLOY / "systemd" / "roquet-broker@.service").read_text("utf-8")
    assert "\nTimeoutStartSec=infinity\n" in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text("utf-8").replace("/opt/roquet/bin/roquet", "/bin/true")
        (tmp_path / unit.name.replace("@", "@broker-a")).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", *map(str, tmp_path.iterdir())],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


def test_the_container_has_a_user_a_health_check_and_settings_that_there_are() -> None:
    assert re.search(r"^USER [1-9]\d+$", CONTAINER, re.MULTILINE)
    (check,) = re.findall(r"^HEALTHCHECK .*CMD \[(.*)\]$", CONTAINER, re.MULTILINE)
    assert problem(check.replace('"', "").replace(",", "")) is None
    variables = set(re.findall(r"ROQUET_([A-Z_]+)=", CONTAINER)) - {"LOG_FORMAT"}
    assert {name.lower() for name in variables} <= SETTINGS.keys()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or not shutil.which("unshare"),
    reason="the steps of the container run in a chroot, which needs root on Linux",
)
def test_the_steps_of_the_container_make_a_server_without_rights_that_is_healthy(
    tmp_path: Path,
) -> None:
    wheel = build_wheel(tmp_path / "wheel", environment={"CC": "false"})  # pure Python is enough
    root = tmp_path / "root"
    root.mkdir()
    command = ["roquet", "broker", "--memory", "--host", "127.0.0.1", "--port", "0"]
    command += ["--metrics", "127.0.0.1:5557"]
    found = subprocess.run(
        ["unshare", "--mount", sys.executable, container_steps.__file__, CONTAINERFILE, wheel, root,
         *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    assert json.loads(found.stdout.splitlines()[-1]) == {
        "uid": 10911, "health": 0, "may write": ["/data", "/tmp"], "exit code": 0,
    }  # fmt: skip
