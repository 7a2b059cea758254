"""PyTorch's threads are set without importing it."""

import os
import subprocess
import sys

import pytest
import torch
from variants_support import mostly_slow

from collapipe_env.evaluation.torch_threads import compute_in_threads

PROGRAM = """
import sys
from collapipe_env.evaluation.torch_threads import compute_in_threads
finders = list(sys.meta_path)
outer, inner = compute_in_threads(5), compute_in_threads(3)
assert "torch" not in sys.modules and len(sys.meta_path) == len(finders) + 1
{before}
import torch
assert sys.meta_path == finders
found = [torch.get_num_threads()]
outer()
print(*found, torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("before", "found"), mostly_slow([("", "3 2"), ("inner()", "2 2")]), ids=["waiting", "forgotten"]
)
def test_threads_are_set_by_the_import_and_given_back(before, found):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == found


def test_threads_are_set_at_once_where_it_is_imported():
    before = torch.get_num_threads()
    restore = compute_in_threads(before + 2)
    assert torch.get_num_threads() == before + 2
    restore()
    assert torch.get_num_threads() == before


def test_evaluations_without_networks_import_no_pytorch(tmp_path):
    program = (
        "import sys, collapipe_env\n"
        "found = collapipe_env.evaluate(['dssra', 'random'], 'small', seeds=1, rounds=2, threads=1)\n"
        "print(len(found), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 False"
