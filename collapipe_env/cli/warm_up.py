"""``collapipe warm-up``: compiles the loops of environments and schedulers in advance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import tyro
from numba.core import event

from collapipe_env.cli.common import OWN_HELP, UNTRAINED_HELP, hint, run_command
from collapipe_env.evaluation.own_scenario import named_scenario
from collapipe_env.evaluation.scheduler_loading import make_scheduler, require_scheduler
from collapipe_env.ground.compiled import cache_folder, own_module
from collapipe_env.ground.errors import CollaPipeError, ScenarioError, reason
from collapipe_env.ground.progress import progress_bar
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.scenario.decision_names import COLLAPIPE
from collapipe_env.scenario.names import SHIPPED
from collapipe_env.schedulers import scheduler_names
from collapipe_env.zoo.shipped_agents import PREFIX, shipped_agents

DESCRIPTION = """Compile all loops for this machine in advance.

First steps and decisions then need not wait for the compiler. Compiled code is cached on disk, and what is
already there is not compiled again. After Ctrl-C, finished work is kept and the same command resumes there.

Examples:
  collapipe warm-up
  collapipe warm-up --schedulers dssra
  collapipe warm-up --scenarios medium --schedulers dssra zoo:graph
"""


@dataclass(frozen=True)
class Options:
    """All options."""

    schedulers: Annotated[
        tuple[str, ...] | None,
        tyro.conf.arg(metavar="NAME ...", help=f"Schedulers whose searches to compile: {UNTRAINED_HELP}"),
        hint("default: all"),
    ] = None
    scenarios: Annotated[
        tuple[str, ...] | None,
        tyro.conf.arg(
            metavar="NAME ...",
            help=f"Compile only for a round of these: shipped scenarios ({SHIPPED}), YAML files, {OWN_HELP}",
        ),
        hint("default: all that any scenario may need"),
    ] = None


_ENVIRONMENTS = "environments"
"""Name of the part in which no scheduler plays."""


class _Count(event.Listener):
    """Counts the package's functions that are compiled, rather than loaded."""

    def __init__(self) -> None:
        self.compiled = 0

    def on_start(self, event: Any) -> None:
        self.compiled += bool(own_module(event))

    def on_end(self, event: Any) -> None:
        pass


def main(arguments: Sequence[str] | None = None, *, program: str = "collapipe warm-up") -> int:
    """Run the command line; see :func:`~collapipe_env.cli.common.run_command`."""

    def run(options: Options, *_: object) -> None:
        warm_up(options.schedulers, options.scenarios)

    return run_command(Options, run, DESCRIPTION, arguments, program)


def warm_up(schedulers: Sequence[str] | None = None, scenarios: Sequence[str] | None = None) -> int:
    """Play a round of everything that is compiled, and print the time.

    Args:
        schedulers: Schedulers whose searches to compile; all by default.
        scenarios: Scenarios, as names or files; only the functions that a round of them needs are compiled.
            By default everything that any scenario may need is compiled.

    Returns:
        Number of functions that were compiled; 0 if all were compiled already.

    Raises:
        ScenarioError: If a list is empty, a scheduler or a scenario is not known, or none of the schedulers
            that were named can play.
    """
    for option, asked, example in (
        ("--schedulers", schedulers, "dssra"),
        ("--scenarios", scenarios, "medium"),
    ):
        if asked is not None and not asked:
            raise ScenarioError(
                f"{option} is empty: name at least one, such as {example}, or leave {option} out"
            )
    names = (*scheduler_names(), *_compiled_agents()) if schedulers is None else tuple(schedulers)
    for name in names:
        require_scheduler(name)
    if scenarios is None:
        jobs = _everything(names)
    else:
        places = {of: _named_scenario(of) for of in scenarios}
        jobs = {
            f"{name} on {of}": partial(_play, name, place) for of, place in places.items() for name in names
        }
    count, left_out = _Count(), dict[str, str]()
    start = time.perf_counter()
    register: Any = event.register
    unregister: Any = event.unregister
    register("numba:compile", count)
    try:
        with progress_bar(len(jobs), "compiling", "parts") as bar:
            for name, job in jobs.items():
                bar.set_postfix_str(name)
                try:
                    job()
                except CollaPipeError as error:  # it cannot play this scenario: there is nothing to compile
                    left_out[name] = reason(error)
                bar.update()
    finally:
        unregister("numba:compile", count)
    if schedulers is not None or scenarios is not None:
        # Among all pairs some are always impossible; only a user who names some wants to know.
        for name, why in left_out.items():
            print(f"left out: {name}: {why}")
        if left_out.keys() >= jobs.keys() - {_ENVIRONMENTS}:
            raise ScenarioError(
                "none of these schedulers can play: name others with --schedulers, or other scenarios with "
                "--scenarios"
            )
    folder = cache_folder()
    kept = "not kept (set NUMBA_CACHE_DIR)" if folder is None else f"kept below {folder}"
    if count.compiled == 0:
        print(f"everything is compiled already; compiled code is {kept}")
    else:
        seconds = time.perf_counter() - start
        print(f"compiled {count.compiled} functions in {seconds:.0f} s; they are {kept}")
    return count.compiled


def _named_scenario(source: str) -> Scenario:
    """A scenario that ``--scenarios`` names."""
    try:
        return named_scenario(source)
    except CollaPipeError as error:
        raise ScenarioError(f"--scenarios: {str(error).removeprefix('scenario: ')}") from None


def _everything(names: Sequence[str]) -> dict[str, Callable[[], None]]:
    """Jobs that compile everything for these schedulers, by name."""
    small = load_scenario("small")
    jobs: dict[str, Callable[[], None]] = {_ENVIRONMENTS: _play_environments}
    jobs.update({name: partial(_play, name, small) for name in names})
    if "dssra" in names:
        jobs["dssra, order and schedule open"] = partial(_play, "dssra", load_scenario(_OPEN))
    return jobs


def _play_environments() -> None:
    """Play rounds of environments."""
    # Imported here, as below: the options' help needs no environments.
    from collapipe_env.envs.observation_kinds import OBSERVATIONS
    from collapipe_env.envs.vector import CollaPipeVectorEnv

    for observation in OBSERVATIONS:
        env = CollaPipeVectorEnv(2, "small", "surrogate", observation=observation)
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(2):
            env.step(env.action_space.sample())
        env.close()


def _compiled_agents() -> list[str]:
    """Agents of the zoo whose decisions are compiled: graph nets, one of which stands for all."""
    nets = [name for name, agent in shipped_agents().items() if agent.algorithm == "graph"]
    return [f"{PREFIX}{name}" for name in nets[:1]]


_OPEN: dict[str, Any] = {"base": "small", "decisions": [*COLLAPIPE, "schedule"]}
"""The smallest scenario with the decision that has a search of its own."""


def _play(name: str, scenario: Scenario) -> None:
    """Have a scheduler decide a round of a scenario, and play it."""
    from collapipe_env.evaluation.episode import play_episode

    play_episode(name, make_scheduler(name, scenario), scenario, 0, 1, "surrogate")
