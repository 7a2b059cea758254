"""PyTorch's threads are set without importing it."""

import subprocess
import sys

import torch

from collapipe_env.evaluation.torch_threads import TorchThreads

PROGRAM = """
import sys
import collapipe_env
from collapipe_env.evaluation.torch_threads import TorchThreads
assert len(collapipe_env.evaluate("dssra", "small", seeds=1, rounds=1, threads=1)) == 1
with TorchThreads(3) as threads:
    assert "torch" not in sys.modules
    import torch
    before = torch.get_num_threads()
    threads.apply()
    assert torch.get_num_threads() == 3
    threads.apply()
assert torch.get_num_threads() == before
"""


def test_evaluations_without_networks_import_no_pytorch_whose_threads_are_set_later_and_given_back():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_threads_are_set_at_once_where_it_is_imported():
    before = torch.get_num_threads()
    with TorchThreads(before + 2):
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
