"""Compile all loops for this machine in advance.

First steps and decisions then need not wait for the compiler. Compiled code
is cached on disk, and what is already there is not compiled again. After
Ctrl-C, finished work is kept and the same command resumes there.

Examples:
  collapipe warm-up
  collapipe warm-up --schedulers dssra
  collapipe warm-up --scenarios medium --schedulers dssra zoo:graph
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numba.core import event

from collapipe_env.cli.chosen import chosen_scenario
from collapipe_env.cli.common import required_schedulers
from collapipe_env.cli.option_types import OWN_HELP, UNTRAINED_HELP, about
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.compiled import cache_folder, own_module
from collapipe_env.ground.errors import CollaPipeError, ScenarioError, reason
from collapipe_env.ground.progress import progress_bar
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.scenario.names import SHIPPED
from collapipe_env.schedulers import scheduler_names
from collapipe_env.zoo.shipped_agents import PREFIX, shipped_agents


@dataclass(frozen=True)
class Options:
    """All options."""

    schedulers: Annotated[
        tuple[str, ...] | None,
        about("NAME ...", "all", f"Schedulers whose searches to compile: {UNTRAINED_HELP}"),
    ] = None
    scenarios: Annotated[
        tuple[str, ...] | None,
        about(
            "NAME ...",
            "all that any scenario may need",
            f"Compile only for a round of these: shipped scenarios ({SHIPPED}), YAML files, {OWN_HELP}",
        ),
    ] = None


ENVIRONMENTS = "environments"
"""Name of the part in which no scheduler plays."""
OPEN: dict[str, Any] = {"base": "small", "decisions": [*COLLAPIPE, "schedule"]}
"""The smallest scenario with the decision that has a search of its own."""


def run(options: Options, *_: object) -> None:
    """Compile."""
    schedulers, scenarios = options.schedulers, options.scenarios
    # Decisions of graph nets are compiled, too; one of the zoo's stands for all.
    nets = [f"{PREFIX}{name}" for name, agent in shipped_agents().items() if agent.algorithm == "graph"]
    names = (*scheduler_names(), *nets[:1]) if schedulers is None else schedulers
    required_schedulers(names, agent=False)
    jobs: dict[str, Callable[[], None]] = {}
    if scenarios is None:
        small = load_scenario("small")
        jobs = {ENVIRONMENTS: _play_environments, **{name: partial(_play, name, small) for name in names}}
        if "dssra" in names:
            jobs["dssra, order and schedule open"] = partial(_play, "dssra", load_scenario(OPEN))
        if not {*names}.isdisjoint(nets):
            jobs["training of graph nets"] = _train_graph_net
    for source in scenarios or ():
        scenario = chosen_scenario(source)
        jobs |= {f"{name} on {source}": partial(_play, name, scenario) for name in names}
    left_out: dict[str, str] = {}
    start = time.perf_counter()
    with (
        event.install_recorder("numba:compile") as recorder,
        progress_bar(len(jobs), "compiling", "parts") as bar,
    ):
        for name, job in jobs.items():
            bar.set_postfix_str(name)
            try:
                job()
            except CollaPipeError as error:  # it cannot play this scenario: there is nothing to compile
                left_out[name] = reason(error)
            bar.update()
    # The package's functions that were compiled, rather than loaded.
    compiled = sum(one.is_start and bool(own_module(one)) for _, one in recorder.buffer)
    if schedulers is not None or scenarios is not None:
        # Among all pairs some are always impossible; only a user who names some wants to know.
        for name, why in left_out.items():
            print(f"left out: {name}: {why}")
        if left_out.keys() >= jobs.keys() - {ENVIRONMENTS}:
            hint = "name others with --schedulers, or other scenarios with --scenarios"
            raise ScenarioError(f"none of these schedulers can play: {hint}")
    folder = cache_folder()
    kept = "not kept (set NUMBA_CACHE_DIR)" if folder is None else f"kept below {folder}"
    new = f"compiled {compiled} functions in {time.perf_counter() - start:.0f} s; they are {kept}"
    print(new if compiled else f"everything is compiled already; compiled code is {kept}")


def _play_environments() -> None:
    # Imported here, as below: the options' help needs no environments.
    from collapipe_env.envs.observation_kinds import OBSERVATIONS
    from collapipe_env.envs.vector import CollaPipeVectorEnv

    places: list[tuple[Any, str]] = [("small", observation) for observation in OBSERVATIONS]
    for scenario, observation in ((load_scenario(OPEN), "flat"), *places):
        env = CollaPipeVectorEnv(2, scenario, "surrogate", observation=observation)
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(2):
            env.step(env.action_space.sample())
        env.close()


def _play(name: str, scenario: Scenario) -> None:
    from collapipe_env.evaluation.episode import play_episode

    play_episode(name, make_scheduler(name, scenario), scenario, 0, 1, "surrogate")


def _train_graph_net() -> None:
    from collapipe_env.agents.learned.graph.graph_parameters import GraphParameters
    from collapipe_env.agents.learned.graph.net import GraphNet
    from collapipe_env.agents.learned.graph.step import learn_and_play
    from collapipe_env.agents.learned.graph.systems import Group
    from collapipe_env.agents.learned.hyperparameters import usual

    p = usual(GraphParameters, samples=2, fading_draws=2, width=8, hidden=8, heads=2)
    net, rng = GraphNet(p), np.random.default_rng(0)
    # The price of a plan is exact in the first, expected in the second, where moved blocks have a price, too.
    for name in ("small", "small-wild"):
        group = Group(load_scenario(name), 2, life=2, seed=0)
        group.env.action_space.seed(0)
        group.env.step(group.env.action_space.sample())  # a plan that the net may want to keep
        learn_and_play(net, group, p, 0.0, rng)
