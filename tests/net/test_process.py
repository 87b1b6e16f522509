"""The process id follows a fork."""

import os
import subprocess
import sys

from roquet.net.process import CURRENT_PROCESS

FORK = """
import os
from roquet.net.process import CURRENT_PROCESS

child = os.fork()
if not child:
    os._exit(0 if os.getpid() == CURRENT_PROCESS.pid else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_process_id_is_that_of_this_process() -> None:
    assert os.getpid() == CURRENT_PROCESS.pid


def test_a_forked_child_knows_its_own_process_id() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True)  # of one thread, so it may fork


WITHOUT_FORK = """
import os
del os.register_at_fork
import roquet.net.process
"""


def test_the_module_is_imported_where_no_process_forks() -> None:
    """As on Windows."""
    subprocess.run([sys.executable, "-c", WITHOUT_FORK], check=True)
