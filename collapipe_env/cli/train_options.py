"""Options of ``collapipe train`` and ``train_agent.py``, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from collapipe_env.agents.learned.graph.graph_parameters import (
    GraphParameters,
    check_graph_parameters,
    recipe,
    require_scenarios,
)
from collapipe_env.agents.learned.hyperparameters import (
    HyperParameters,
    PPOParameters,
    SACParameters,
    check_parameters,
    usual,
)
from collapipe_env.cli.common import parse
from collapipe_env.cli.early_end import Call
from collapipe_env.cli.option_types import (
    OWN_HELP,
    Count,
    Dataset,
    ExecutorOptions,
    Folder,
    Fresh,
    Learner,
    Schedulers,
    Source,
    TaskName,
    Within,
    about,
)
from collapipe_env.cli.playing import PlayOptions
from collapipe_env.ground.errors import ScenarioError

DEFAULT_STEPS: dict[tuple[str, str], int] = {
    ("ppo", "surrogate"): 600_000,
    ("sac", "surrogate"): 200_000,
    ("ppo", "real"): 2_000,
    ("sac", "real"): 2_000,
    ("graph", "surrogate"): 36_000,
}
DEFAULT_ENVS = {"surrogate": 64, "real": 2}


@dataclass(frozen=True)
class TrainingOptions:
    """Agent, scenario and data of the training."""

    scenario: Source = "medium"
    task: TaskName = None
    dataset: Dataset = None
    algo: Literal["ppo", "sac", "graph"] = "ppo"
    """Learning algorithm; graph trains one net for all sizes, with gradients of the simulated round."""
    recipe: Literal["wild"] | None = None
    """A named training of graph, with --steps and --graph.* of its own; those that are given prevail."""
    steps: Annotated[
        Count,
        Within(1, 10**10),
        about(default="600,000 for ppo, 200,000 for sac, 36,000 for graph; 2,000 with --train-learner real"),
    ] = None
    """Rounds, or gradient steps for graph; a larger number lengthens a finished training."""
    envs: Annotated[Count, Within(1, 4096), about(default="64; 2 with --train-learner real")] = None
    """Number of environments that play at once."""
    train_learner: Learner = "surrogate"
    reward: Annotated[
        str | None,
        about(
            "NAME",
            "lyapunov; time_to_target if participation or local steps are open",
            "Reward that the agent maximises: lyapunov or drift_plus_penalty (delay against energy queues), "
            f"delay, time_to_target, {OWN_HELP}",
        ),
    ] = None
    seed: Annotated[int, Within(0, 2**30)] = 0
    """Seed of weights, exploration and training episodes."""
    runs: Annotated[int, Within(1, 1000)] = 1
    """Trainings with the seeds --seed, --seed + 1, ..., --processes at once; one row of the comparison."""
    track: Annotated[Literal["wandb", "mlflow"] | None, about("wandb|mlflow", "none")] = None
    """Also log the training to Weights & Biases or MLflow."""
    out: Annotated[Folder, about(default="runs/<scenario>-<algo>-seed<seed>, or -seeds<first>-<last>")] = None
    fresh: Fresh = False


@dataclass(frozen=True)
class EvaluationOptions(PlayOptions):
    """The comparison afterwards, on held-out episodes that are the same for every scheduler."""

    learner: Learner = "real"
    schedulers: Annotated[
        Schedulers,
        about(
            default="agent dssra pipeline random, zoo:graph if budgets are per round, and the zoo's PPO and "
            "SAC agents for the scenario"
        ),
    ] = None


@dataclass(frozen=True)
class Options:
    """Options, in the groups of ``--help``."""

    training: tyro.conf.OmitArgPrefixes[TrainingOptions] = field(default_factory=TrainingOptions)
    evaluation: tyro.conf.OmitArgPrefixes[EvaluationOptions] = field(default_factory=EvaluationOptions)
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)
    ppo: PPOParameters = field(default_factory=lambda: usual(PPOParameters))
    """Hyper-parameters of PPO. The defaults were chosen by experiments on medium."""
    sac: SACParameters = field(default_factory=lambda: usual(SACParameters))
    """Hyper-parameters of SAC."""
    graph: GraphParameters = field(default_factory=lambda: usual(GraphParameters))
    """Hyper-parameters of the graph net."""

    def with_recipe(self, call: Call) -> Options:
        """Return the options with the recipe's values in place of those that the call does not give."""
        name, algo = self.training.recipe, self.training.algo
        if name is None:
            return self
        if algo != "graph":
            raise ScenarioError(
                f"--recipe {name} with --algo {algo}: it is a training of the graph net; give --algo graph"
            )
        steps, graph = recipe(name)
        options: Options = parse(Options, call, default=Options(TrainingOptions(steps=steps), graph=graph))
        return options

    @property
    def parameters(self) -> HyperParameters | GraphParameters:
        """Hyper-parameters of the chosen algorithm."""
        parameters: HyperParameters | GraphParameters = getattr(self, self.training.algo)
        return parameters

    @property
    def steps(self) -> int:
        """Rounds to train on, or gradient steps."""
        return self.training.steps or DEFAULT_STEPS[self.training.algo, self._like]

    @property
    def envs(self) -> int:
        """Environments that play at once."""
        return self.training.envs or DEFAULT_ENVS[self._like]

    @property
    def _like(self) -> str:
        """The package's learner whose defaults apply: a user's own learner may be slow."""
        return "surrogate" if self.training.train_learner == "surrogate" else "real"

    def check(self) -> None:
        """Refuse combinations that make no sense."""
        training, algo = self.training, self.training.algo
        for name in ("envs", "train_learner", "reward") if algo == "graph" else ():
            value = getattr(training, name)
            if value != getattr(TrainingOptions, name):
                raise ScenarioError(
                    f"--{name.replace('_', '-')} {value} with --algo graph: it learns from the model of the "
                    "system, not from rewards; leave the option out"
                )
        for other in ("ppo", "sac", "graph"):
            given = getattr(self, other)
            if other != algo and given != usual(type(given)):
                raise ScenarioError(
                    f"--{other}.* options with --algo {algo}: they are of another algorithm; leave "
                    f"them out, or give --{algo}.* options"
                )
        if training.track is not None:
            from collapipe_env.agents.learned.tracking import require_tracker

            require_tracker(training.track)
        if isinstance(self.parameters, GraphParameters):
            check_graph_parameters(self.parameters, "--graph.")
            require_scenarios(self.parameters, "--graph.")
        else:
            check_parameters(self.parameters, f"--{algo}.")
