"""The examples of docs/churn.md run as they stand there."""

import re
from pathlib import Path

import yaml

from collapipe_env.scenario import load_scenario

TEXT = (Path(__file__).parents[1] / "docs" / "churn.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_example_finds_a_failure_and_draws_it(capsys):
    (example,) = blocks("python")
    names = {}
    exec(example, names)
    failed = names["failed"]
    assert failed.device.shape == (1, 2)
    assert (failed.device >= 0).any()
    assert names["picture"].shape == (800, 1200, 3)
    assert capsys.readouterr().out


def test_scenarios_are_what_the_page_says():
    (laws,) = blocks("yaml")
    spec = dict(load_scenario(yaml.safe_load(laws)).dynamics.processes)["presence"]
    assert spec == type(spec)()  # the page shows the defaults
