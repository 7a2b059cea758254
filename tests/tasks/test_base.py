"""The traits of tasks, and what they do to prices and checks."""

import subprocess
import sys

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario, task_registry
from collapipe_env.simulator.build import workload_costs
from collapipe_env.tasks import SHIPPED_TRAITS, TaskTraits, get_task, register_task, task_names, task_traits


class Sentences:
    traits = TaskTraits(outputs="sentence")


class Tokens:
    traits = TaskTraits(outputs="token")


class Writes:
    traits = TaskTraits(outputs="token", decoder=True)


class Silent:
    """A task that says nothing."""


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Registered for one test only."""
    monkeypatch.setattr(task_registry.TASKS, "_added", {})
    for name in ("Sentences", "Tokens", "Writes", "Silent"):
        register_task(name.lower(), f"{__name__}:{name}")


def head_flops(task, **workload):
    """Priced FLOPs of the head of a bare task: 2 positions d V."""
    scenario = load_scenario({"base": "medium", "workload": {"task": task, "outputs": 3, **workload}})
    return workload_costs(scenario).decoder_forward_flops


def test_a_registered_task_is_priced_by_what_it_says():
    assert head_flops("sentences") == head_flops("classification") == 2 * 256 * 3
    assert head_flops("tokens") == head_flops("ner") == 2 * 64 * 256 * 3
    assert head_flops("writes", decoder_blocks=2) > 0
    register_task("SST-2", Sentences)  # by its class
    assert isinstance(get_task("SST-2"), Sentences)
    assert head_flops("SST-2") == head_flops("classification")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("writes", r"'writes' needs workload\.decoder_blocks of at least 1, not 0"),
        ("translation", "'translation' needs decoder_blocks of at least 1, not 0"),
        ("silent", r"task 'silent'.*Silent.*they are None; give its class traits"),
        ("tokes", "there is no task 'tokes'"),
    ],
)
def test_tasks_that_cannot_be_priced(task, message):
    with pytest.raises(ScenarioError, match=message):
        head_flops(task, decoder_blocks=0)


def test_shipped_tasks_say_what_the_package_says_of_them():
    assert set(SHIPPED_TRAITS) == set(task_names()) - {"sentences", "tokens", "writes", "silent"}
    for name, traits in SHIPPED_TRAITS.items():
        assert get_task(name).traits is traits
    with pytest.raises(ScenarioError, match="task 'tokes' is not known: did you mean 'tokens'"):
        task_traits("tokes")


def test_registries_and_prices_need_no_heavy_library():
    code = (
        "import sys\n"
        "from collapipe_env import register_learner, register_task\n"
        "register_learner('mine', 'collapipe_env.training.real_learner:TorchLearner')\n"
        "register_task('mine', 'math:sqrt')\n"
        "assert not {'torch', 'numba', 'scipy'} & set(sys.modules), sorted(sys.modules)\n"
        "from collapipe_env.scenario import load_scenario\n"
        "from collapipe_env.simulator.build import workload_costs\n"
        "import collapipe_env.learners, collapipe_env.scenario.published_models\n"
        "workload_costs(load_scenario('transformer-base'))\n"
        "assert not {'torch', 'collapipe_env.tasks'} & set(sys.modules)\n"
        "import collapipe_env.tasks\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
