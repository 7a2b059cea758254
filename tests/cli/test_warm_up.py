"""``collapipe warm-up``: afterwards nothing is left to compile."""

import os
import re
import subprocess
import sys

from collapipe_env.cli.main import main

FIRST_RUN = """
import sys
from collapipe_env.cli.main import main
sys.exit(main(["warm-up", "--schedulers", "greedy_dpp"]))
"""


def test_a_cold_run_says_how_long_it_took_and_a_second_one_that_all_is_warm(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = []
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", FIRST_RUN], env=environment, capture_output=True, text=True, check=True
        )
        assert result.stderr == ""
        said.append(result.stdout)
    assert re.fullmatch(r"compiled \d+ functions in \d+ s; they are kept below .*\n", said[0])
    assert said[1] == f"all is warm already; compiled code is kept below {tmp_path}\n"


def test_an_unknown_scheduler_is_one_line(capsys):
    assert main(["warm-up", "--schedulers", "dsra"]) == 2
    assert "scheduler 'dsra' is not known" in capsys.readouterr().err
