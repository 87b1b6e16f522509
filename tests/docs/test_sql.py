"""The page SQL and dbt: its statements, typed into spark-sql, print what it shows."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

import exact_environment
from roquet.client import Message, blocking
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.docs, pytest.mark.timeout(900)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "sql-and-dbt.md"
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SOURCE: Final = "{{ source('rocketmq', 'messages') }}"
"""What dbt replaces by the name of the table."""


def test_the_statements_of_the_page_print_what_it_shows(tmp_path: Path, wheel: Path) -> None:
    text = PAGE.read_text("utf-8")
    sent = re.findall(r"roquet produce Sales -m '(.*?)' --tag (\w+)", text)
    _, *blocks = BLOCK.findall(text)  # the first one installs and sends
    statements = [block for language, block in blocks if language == "sql"]
    shown = [block for language, block in blocks if not language]
    model = statements.pop()
    assert SOURCE in model
    statements.append(f"{model.replace(SOURCE, 'messages')};\n")
    (tmp_path / "page.sql").write_text("\n".join(statements))
    programs = exact_environment.make(tmp_path / "venv", "roquet[spark]", wheel)
    (spark,) = programs.parent.glob("lib/python3.*/site-packages/pyspark")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    with BlockingCluster() as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            for body, tag in sent:
                producer.send(Message("Sales", body.encode(), tag=tag))
        run = subprocess.run(
            [spark / "bin" / "spark-sql", "--master", "local[2]", "-f", "page.sql"],
            cwd=tmp_path,
            env={
                **kept,
                "SPARK_HOME": str(spark),
                "PATH": f"{programs}:{os.environ['PATH']}",
                "NAMESRV_ADDR": cluster.namesrv_addr,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "INFO roquet.spark: Sales: reads 3 messages, of which brokers send those" in run.stderr
    assert run.stdout == "".join(shown) + "1\t42.5\n3\t17.5\n"
