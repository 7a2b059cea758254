"""Every benchmark plays a tiny case, prints and stores what it found, and refuses what it cannot play."""

import importlib
import json

import pytest
import torch

SLICES = ("--slice-seconds", "0.002", "--repeats", "2")
TINY = """
base: small
workload: {blocks: 2, batch_size: 4}
cluster: {clusters: 2}
learning:
  proxy: {width: 8, feedforward: 8, heads: 2, sequence_length: 6, vocabulary: 200}
  evaluation_samples: 16
  evaluate_every: 2
  metric_every: 2
"""


def gaps_of_both_cells(found, printed):
    assert set(found["gaps"]) == {"small, closed", "small, server"}
    for gaps in found["gaps"].values():
        assert len(gaps) == 8
        assert min(gaps) >= 0.0
    assert "| small, server |" in printed


def moments_are_lost(found, printed):
    none, all_of_them = found["rows"]
    assert none["more"] == 0.0
    assert all_of_them["mean_loss"] != none["mean_loss"]
    assert "| 1 |" in printed


def passes_are_measured(found, printed):
    assert {row["micro_batches"] for row in found["mini_batch"]} == {1, 2, 4, 8, 16, 32, 64}
    assert found["law"]["forward"]["beta_s"] > 0.0
    assert "alpha is" in printed


def goals_of_the_learner(found, printed):
    assert found["gpu"].startswith("skipped")
    assert [figure["name"] for figure in found["figures"] if figure["goal"] is not None] == [
        f"classification, cpu, rounds of M = {m}: learner, same micro-batches" for m in (2, 4)
    ]


def times_of_the_ladder(found, printed):
    assert {figure["name"]: figure["goal"] for figure in found["figures"]} == {
        "dssra, medium, 20 devices, batch of 1": 5.0,
        "dssra, medium, 20 devices, batch of 3": None,
        "zoo:graph, medium, 20 devices, batch of 1": None,
        "zoo:graph, medium, 20 devices, batch of 3": None,
    }


def rates_of_steps(found, printed):
    assert [figure["name"] for figure in found["figures"]] == [
        "CartPole-v1", "Pendulum-v1", "small, single", "small, 4 in a vector",
        "small-wild, single", "small-wild, 4 in a vector",
    ]  # fmt: skip
    yardstick = found["figures"][0]
    assert yardstick["value"] == yardstick["low"] == yardstick["high"] == 1.0


def torch_agrees_with_numpy(found, printed):
    figures = {figure["name"]: figure for figure in found["figures"]}
    assert figures["small, 3: largest difference"]["verdict"] == "met"
    assert figures["small, 3: numpy"]["value"] == 1.0
    assert figures["small, 3: torch cpu float64"]["value"] > 0.0
    assert figures["small, graph net's training: difference of the loss"]["value"] == 0.0
    assert figures["small, graph net's training: weights on cpu"]["value"] > 0.0
    assert found["gpu"] is None


NAME = "CollaPipeSurrogate-Small-Classification-v0"
RUNS = {
    "dssra_search_gap": (
        ["--scenarios", "small", "--cells", "closed", "server", "--states", "8", "--evaluations", "1000"],
        gaps_of_both_cells,
    ),
    "decision_time": (
        ["--schedulers", "dssra", "zoo:graph", "--scenarios", "medium", "--rounds", "2", "--batch", "3"],
        times_of_the_ladder,
    ),
    "step_rate": (
        ["--ids", NAME, "--tiers", "wild", "--sizes", "small", "--num-envs", "4", *SLICES],
        rates_of_steps,
    ),
    "gpu": (
        ["--device", "cpu", "--scenarios", "small", "--num-envs", "3", "--dtypes", "float64", *SLICES],
        torch_agrees_with_numpy,
    ),
    "learner_rate": (
        ["--scenario", "tiny.yaml", "--micro-batches", "2", "4", "--stages", "2", "--rounds", "2"],
        goals_of_the_learner,
    ),
    "moment_resets": (["--rounds", "3", "--seeds", "1", "--shares", "0", "1"], moments_are_lost),
    "pass_costs": (["--scenario", "small", "--blocks", "1", "--slices", "3"], passes_are_measured),
}
"""Arguments of a tiny run, and what must be in its file and on the screen."""
LONG = {"learner_rate", "moment_resets", "pass_costs"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in RUNS]
)
def test_a_tiny_run_prints_and_stores_what_it_found(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    module, (arguments, check) = importlib.import_module(name), RUNS[name]
    if name == "learner_rate":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    try:
        assert module.main([*arguments, "--output", "new/found.json"]) == 0
    finally:
        torch.set_num_threads(threads)
    found, printed = json.loads((tmp_path / "new/found.json").read_text()), capsys.readouterr().out
    assert "output" not in found["options"]
    for figure in found.get("figures", ()):
        assert figure["name"] in printed
        assert figure["note"] in printed
        if figure["low"] is not None:
            assert figure["low"] <= figure["value"] <= figure["high"]
    check(found, printed)


def test_without_a_gpu_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert importlib.import_module("gpu").main([]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "can use no GPU here: --device cpu" in line


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("decision_time", ["--rounds", "0"], "greater than or equal to 1"),
        ("dssra_search_gap", ["--cells", "clock"], "clocks"),
        ("step_rate", ["--ids", "CollaPipe-Tiny-v0"], "CollaPipe-Tiny"),
        ("step_rate", ["--tiers", "wilt"], "did you mean 'small-wild'?"),
        ("gpu", ["--scenarios", "smal", "--device", "cpu"], "did you mean 'small'"),
        ("surrogate_ranking", ["--target", "-1"], "greater than 0"),
        ("decision_time", ["--schedulers", "dsra"], "did you mean 'dssra'?"),
    ],
)
def test_what_cannot_be_played_is_refused(name, arguments, message, capsys):
    try:
        status = importlib.import_module(name).main(arguments)
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
