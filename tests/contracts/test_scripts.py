"""Every script beside the package: its help, a tiny run where it is cheap, and one line for what it refuses.

Scripts are the tools, the benchmarks, the examples and the research; their numbers have tests of their own.
"""

import ast
import importlib
import json
import re
import runpy
import shlex
import sys

import pages_support as support
import pytest
import torch
import tyro

from collapipe_env.agents.learned.hyperparameters import usual
from collapipe_env.dynamics import PROCESSES

FOLDERS = [support.ROOT / name for name in ("tools", "tools/embedded", "benchmarks", "examples")]
for folder in (*FOLDERS, support.ROOT):
    sys.path.insert(0, str(folder))
WITHOUT_OPTIONS = {"fit_traces", "site_hooks"}
SCRIPTS = {
    path.stem: path
    for folder in FOLDERS
    for path in sorted(folder.glob("*.py"))
    if "__main__" in path.read_text(encoding="utf-8") and path.stem not in WITHOUT_OPTIONS
}
SCRIPTS["research"] = support.ROOT / "research" / "miniatures" / "__main__.py"
EXAMPLES = [name for name, path in SCRIPTS.items() if path.parent.name == "examples"]
PAGES = [support.DOCS / f"{name}.md" for name in ("rl_libraries", "extend")]


def plain(text):
    """What a terminal shows, in one line without frames."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def status_of(name, *arguments):
    """Exit status of a script's ``main`` with these arguments."""
    try:
        return importlib.import_module(name).main(list(arguments))
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_script_does(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.setattr(PROCESSES, "_added", {})  # an example registers its own
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
    assert end.value.code in (0, None)
    shown = plain(capsys.readouterr().out)
    about = ast.get_docstring(ast.parse(SCRIPTS[name].read_text(encoding="utf-8")))
    assert " ".join(about.split())[:30] in shown
    assert "--help" in shown


def commands(text):
    """Names and arguments of the examples that a text runs."""
    found = re.findall(r"^(?:    )?python examples/(\S+)\.py([^#\n]*)", text, re.MULTILINE)
    return [[name, *shlex.split(rest)] for name, rest in found]


@pytest.mark.parametrize("name", EXAMPLES)
def test_commands_that_examples_and_their_pages_name_are_taken(name):
    example, texts = importlib.import_module(name), [page.read_text(encoding="utf-8") for page in PAGES]
    own = commands(example.__doc__ or "")
    paged = [line for text in texts for line in commands(text) if line[0] == name]
    assert len(own) >= 3
    assert paged, "no page says how to run it"
    assert any(f"(../examples/{name}.py)" in text for text in texts)
    for script, *arguments in own + paged:
        assert script == name
        if arguments != ["--help"]:
            options = tyro.cli(example.Args, args=arguments)
            assert (options == example.Args()) == (not arguments)


def gaps_of_both_cells(found, printed):
    assert set(found["gaps"]) == {"small, closed", "small, server"}
    assert all(len(gaps) == 8 and min(gaps) >= 0.0 for gaps in found["gaps"].values())
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
SLICES = "--slice-seconds 0.002 --repeats 2"
RUNS = {
    "dssra_search_gap": (
        "--scenarios small --cells closed server --states 8 --evaluations 1000", gaps_of_both_cells
    ),
    "decision_time": (
        "--schedulers dssra zoo:graph --scenarios medium --rounds 2 --batch 3", times_of_the_ladder
    ),
    "step_rate": (
        "--ids CollaPipeSurrogate-Small-v0 --tiers wild --sizes small --num-envs 4 " + SLICES,
        rates_of_steps,
    ),
    "gpu": (
        "--device cpu --scenarios small --num-envs 3 --dtypes float64 " + SLICES, torch_agrees_with_numpy
    ),
    "learner_rate": (
        "--scenario tiny.yaml --micro-batches 2 4 --stages 2 --rounds 2", goals_of_the_learner
    ),
    "moment_resets": ("--rounds 3 --seeds 1 --shares 0 1", moments_are_lost),
    "pass_costs": ("--scenario small --blocks 1 --slices 3", passes_are_measured),
}  # fmt: skip
"""Arguments of a benchmark's tiny run, and what must be in its file and on the screen."""
LONG = {"gpu", "learner_rate", "moment_resets", "pass_costs"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in RUNS]
)
def test_a_tiny_run_of_a_benchmark_prints_and_stores_what_it_found(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if name == "gpu":  # a net that learns from few systems
        sizes = {"clusters": 2, "samples": 2, "width": 8, "hidden": 8}
        monkeypatch.setattr(importlib.import_module(name), "usual", lambda kind: usual(kind, **sizes))
    (tmp_path / "tiny.yaml").write_text(TINY)
    arguments, check = RUNS[name]
    threads = torch.get_num_threads()
    try:
        assert status_of(name, *arguments.split(), "--output", "new/found.json") == 0
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


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("decision_time", "--rounds 0", "greater than or equal to 1"),
        ("decision_time", "--schedulers dsra", "did you mean 'dssra'?"),
        ("dssra_search_gap", "--cells clock", "clocks"),
        ("step_rate", "--ids CollaPipe-Tiny-v0", "CollaPipe-Tiny"),
        ("step_rate", "--ids --tiers wilt", "did you mean 'small-wild'?"),
        ("gpu", "--scenarios smal --device cpu", "did you mean 'small'"),
        ("gpu", "", "can use no GPU here: --device cpu"),
        ("surrogate_ranking", "--target -1", "greater than 0"),
        ("choose_graph_net", "none.safetensors", "none.safetensors does not exist"),
        ("choose_graph_net", "zoo:small-ppo", "is an agent of ppo, not a graph net"),
        ("choose_graph_net", "zoo:graph --episodes 0", "greater than or equal to 1"),
        ("choose_graph_net", "", "at least 1 item"),
        ("make_minari_sets", "--ppo best.zip", "give it as SCENARIO=FILE"),
        ("make_minari_sets", "--ppo large=best.zip", "which --scenarios does not list"),
        ("docs", "head", "there is no part 'head': choose from"),
        ("docs", "heat/clock", "heat/clocks"),
        ("fit_surrogate", "--scenario smal", "did you mean 'small'"),
        ("add_to_zoo", "none.safetensors Tiny/.. --description x", "name 'Tiny/..'"),
        ("research.miniatures.__main__", "--only nothing", "no miniature's name has this"),
    ],
)
def test_what_cannot_be_done_is_refused(script, arguments, words, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert status_of(script, *arguments.split()) == 2
    assert words in plain(capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
