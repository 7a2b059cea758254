"""The stacked form of a local step is the loop's, and the benchmark of both runs and checks its options."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import batched_learner


@pytest.mark.parametrize(("clusters", "samples"), [(1, 5), (3, 8)])
def test_stacked_losses_and_gradients_are_the_loops(clusters, samples):
    looped = batched_learner.LoopedClusters("small", clusters, samples)
    stacked = batched_learner.StackedClusters(looped)
    for _ in range(2):  # gradients of the step before are gone
        torch.testing.assert_close(stacked.step(), looped.step(), rtol=1e-5, atol=1e-6)
    for n, model in enumerate(looped.models):
        for name, parameter in model.named_parameters():
            expected = parameter.grad
            scale = float(expected.abs().max())
            found = stacked.parameters[name].grad[n]
            torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-4 * scale + 1e-9, msg=name)


def test_runs_and_stores_its_table(tmp_path, capsys):
    path = tmp_path / "batched.json"
    threads = torch.get_num_threads()
    arguments = ["--scenarios", "small", "--environments", "1", "2", "--samples", "2"]
    batched_learner.main([*arguments, "--slice-seconds", "0.01", "--repeats", "1", "--output", str(path)])
    assert torch.get_num_threads() == threads
    content = json.loads(path.read_text())
    names = [f["name"] for f in content["figures"]]
    assert names == [f"small, {count} environments of 2 clusters, 2 samples" for count in (1, 2)]
    assert all(f["value"] > 0.0 and f["unit"] == "x loop" for f in content["figures"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scenarios", "tiny"],
        ["--environments", "0"],
        ["--samples", "0"],
        ["--slice-seconds", "nan"],
        ["--repeats", "0"],
        ["--output", "."],
    ],
    ids=lambda a: a[0],
)
def test_bad_options_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        batched_learner.parse_arguments(arguments)
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err
