"""Options of ``collapipe train`` and ``train_agent.py``, and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
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
from collapipe_env.cli.common import require_schedulers
from collapipe_env.cli.executor_options import ExecutorOptions
from collapipe_env.cli.option_types import (
    OWN_HELP,
    Count,
    Dataset,
    Folder,
    Fresh,
    Learner,
    Schedulers,
    Source,
    TaskName,
    Threads,
    Within,
    about,
)
from collapipe_env.cli.playing import EpisodeOptions
from collapipe_env.envs.default_reward import default_reward, with_target
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED

LARGEST_SEED = 2**30
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
    seed: Annotated[int, Within(0, LARGEST_SEED)] = 0
    """Seed of weights, exploration and training episodes."""
    runs: Annotated[int, Within(1, 1000)] = 1
    """Trainings with the seeds --seed, --seed + 1, ..., --processes at once; one row of the comparison."""
    threads: Threads = 1
    """PyTorch threads per process; one is fastest for models this small."""


@dataclass(frozen=True)
class EvaluationOptions(EpisodeOptions):
    """The comparison afterwards, on held-out episodes that are the same for every scheduler."""

    learner: Learner = "real"
    schedulers: Annotated[
        Schedulers,
        about(
            default="agent dssra pipeline random, zoo:graph if budgets are per round, and the zoo's PPO and "
            "SAC agents for the scenario"
        ),
    ] = None
    evaluate_only: bool = False
    """Do not train: evaluate the best agent in the folder."""
    agent: Annotated[Path | None, about("FILE|zoo:NAME", "the one trained here")] = None
    """Do not train: evaluate this saved agent, or an agent of the zoo."""


@dataclass(frozen=True)
class OutputOptions:
    """Folder, tracking and figures."""

    out: Annotated[Folder, about(default="runs/<scenario>-<algo>-seed<seed>, or -seeds<first>-<last>")] = None
    """Folder for checkpoints, TensorBoard curves, episodes, figures and results."""
    fresh: Fresh = False
    track: Annotated[Literal["wandb", "mlflow"] | None, about("wandb|mlflow", "none")] = None
    """Also log the training to Weights & Biases or MLflow."""
    no_figures: bool = False
    """Draw no figures."""


@dataclass(frozen=True)
class Options:
    """Options, in the groups of ``--help``."""

    training: tyro.conf.OmitArgPrefixes[TrainingOptions] = field(default_factory=TrainingOptions)
    evaluation: tyro.conf.OmitArgPrefixes[EvaluationOptions] = field(default_factory=EvaluationOptions)
    output: tyro.conf.OmitArgPrefixes[OutputOptions] = field(default_factory=OutputOptions)
    where: tyro.conf.OmitArgPrefixes[ExecutorOptions] = field(default_factory=ExecutorOptions)
    ppo: PPOParameters = field(default_factory=lambda: usual(PPOParameters))
    """Hyper-parameters of PPO. The defaults were chosen by experiments on medium."""
    sac: SACParameters = field(default_factory=lambda: usual(SACParameters))
    """Hyper-parameters of SAC."""
    graph: GraphParameters = field(default_factory=lambda: usual(GraphParameters))
    """Hyper-parameters of the graph net."""

    def with_recipe(self, given: Iterable[str]) -> Options:
        """The options with the recipe's values in place of those that are not given.

        Raises:
            ScenarioError: The recipe is of another algorithm.
        """
        training, named = self.training, {name.replace("_", "-") for name in given}
        if training.recipe is None:
            return self
        if training.algo != "graph":
            raise ScenarioError(
                f"--recipe {training.recipe} with --algo {training.algo}: it is a training of the graph net; "
                "give --algo graph"
            )
        steps, named_recipe = recipe(training.recipe)
        left = [f.name for f in fields(GraphParameters) if f"--graph.{f.name.replace('_', '-')}" not in named]
        return replace(
            self,
            training=replace(training, steps=training.steps or steps),
            graph=replace(self.graph, **{name: getattr(named_recipe, name) for name in left}),
        )

    @property
    def trains(self) -> bool:
        """Whether an agent is trained before the evaluation."""
        return not self.evaluation.evaluate_only and self.evaluation.agent is None

    @property
    def parameters(self) -> HyperParameters | GraphParameters:
        """Hyper-parameters of the chosen algorithm."""
        parameters: HyperParameters | GraphParameters = getattr(self, self.training.algo)
        return parameters

    @property
    def steps(self) -> int:
        """Rounds to train on."""
        return self.training.steps or DEFAULT_STEPS[self.training.algo, self._like]

    def whole_steps(self, done: int) -> int:
        """Rounds after which a training ends that begins after some: PPO completes its current rollout."""
        if self.training.algo == "graph":
            return self.steps
        rollout = self.envs * (self.ppo.rollout_steps if self.training.algo == "ppo" else 1)
        return done + -(-(self.steps - done) // rollout) * rollout

    @property
    def envs(self) -> int:
        """Environments that play at once."""
        return self.training.envs or DEFAULT_ENVS[self._like]

    @property
    def _like(self) -> str:
        """The package's learner whose defaults apply: a user's own learner may be slow."""
        return "surrogate" if self.training.train_learner == "surrogate" else "real"

    def check(self, scenario: Scenario) -> None:
        """Refuse combinations that make no sense.

        Raises:
            ScenarioError: Names the option, its value and the allowed values.
        """
        training, evaluation = self.training, self.evaluation
        missing = (
            with_target(scenario, training.reward or default_reward(scenario)).dynamics.target_loss is None
        )
        if training.reward == "time_to_target" and missing:
            raise ScenarioError(
                f"--reward time_to_target needs a target loss, which scenario {scenario.name!r} does not "
                "set: give dynamics.target_loss in a YAML file of your own"
            )
        if training.algo == "graph":
            self._check_graph()
        for name, given in (("ppo", self.ppo), ("sac", self.sac), ("graph", self.graph)):
            if name != training.algo and given != usual(type(given)):
                raise ScenarioError(
                    f"--{name}.* options with --algo {training.algo}: they are of another algorithm; leave "
                    f"them out, or give --{training.algo}.* options"
                )
        if self.output.track is not None and self.trains:
            from collapipe_env.agents.learned.tracking import require_tracker

            require_tracker(self.output.track)
        self.where.check()
        if training.runs > 1 and evaluation.agent is not None:
            raise ScenarioError(f"--runs {training.runs} with --agent, which trains nothing: leave one out")
        if evaluation.schedulers is not None:
            require_schedulers(evaluation.schedulers)
        if evaluation.agent is not None and LEARNED not in (evaluation.schedulers or (LEARNED,)):
            raise ScenarioError(f"--agent is given but --schedulers leaves {LEARNED!r} out: add it")
        # Parameters of the other algorithms have their defaults, as checked above.
        if training.algo == "graph":
            check_graph_parameters(self.graph, "--graph.")
            require_scenarios(self.graph, "--graph.")
        else:
            check_parameters(getattr(self, training.algo), f"--{training.algo}.")

    def _check_graph(self) -> None:
        """Refuse options that the graph net's training does not have."""
        plain = TrainingOptions()
        for name in ("envs", "train_learner", "reward"):
            value = getattr(self.training, name)
            if value != getattr(plain, name):
                raise ScenarioError(
                    f"--{name.replace('_', '-')} {value} with --algo graph: it learns from the model of the "
                    "system, not from rewards; leave the option out"
                )
