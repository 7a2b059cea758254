"""The benchmark of the torch backend runs, checks its options, and says what it skipped and why."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import torch_backend


def test_runs_and_stores_its_table(tmp_path, capsys):
    path = tmp_path / "torch.json"
    arguments = ["--scenario", "small", "--num-envs", "3", "--dtypes", "float64"]
    torch_backend.main(
        [*arguments, "--slice-seconds", "0.002", "--repeats", "2", "--threads", "1", "--output", str(path)]
    )
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    found = {f["name"]: f for f in content["figures"]}
    assert found["numpy, 3"]["value"] == 1.0
    assert found["torch cpu float64, 3"]["value"] > 0.0
    assert "steps/s" in found["torch cpu float64, 3"]["note"]
    assert content["options"]["threads"] == 1
    for size in (3, 16384):
        figure = found[f"torch cuda float64, {size}"]
        if torch.cuda.is_available():
            assert figure["value"] > 0.0
        else:
            assert figure["verdict"] == "skipped"
            assert "can use no GPU here" in figure["note"]
            assert figure["note"] in printed


def test_a_call_counts_every_environment():
    assert torch_backend.numpy_contestant("small", 5).units == 5
    contestant = torch_backend.torch_contestant("small", 4, "cpu", "float32")
    assert (contestant.units, contestant.name) == (4, "torch cpu float32, 4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "tiny"], "'tiny'"),
        (["--num-envs", "0"], "--num-envs: 0 is not within 1"),
        (["--threads", "0"], "--threads: 0 is not within 1"),
        (["--slice-seconds", "0"], "--slice-seconds: 0.0 is not within 0.001 to 60"),
        (["--repeats", "0"], "--repeats: 0 is not within 1 to 1,000"),
        (["--output", "."], "is a folder"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_options_are_refused(arguments, message, capsys):
    assert torch_backend.main(arguments) == 2
    assert message in capsys.readouterr().err
