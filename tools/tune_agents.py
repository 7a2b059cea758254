"""Try hyper-parameters of PPO or SAC at random, for ``docs/learned_agents.md``; every trial is kept.

Run ``python tools/tune_agents.py``. Trial 0 has the values under ``START``; each further trial draws every
field of ``SPACE`` from its short list, with a generator of the search's seed and the trial's number, so that
more trials do not change earlier ones. A trial trains with ``collapipe train``'s own loop. Its score is that
of its best version on the validation episodes: the exact drift plus penalty. For the reader, the table also
shows delay and energy beside DSSRA's. The held-out episodes of the comparisons are left alone.

One row of ``trials.csv`` is written for each trial that ends. Run it again after Ctrl-C: it continues within
the interrupted trial.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

# The modules of this folder import each other as they would in the command's own process.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from generated_parts import markdown_table, write_parts
from measuring import Between, Checked, command

from collapipe_env.agents.dssra import DSSRA
from collapipe_env.agents.learned.agent_training import TrainingFiles, TrainingPlan, train
from collapipe_env.agents.learned.hyperparameters import PARAMETERS, Algorithm, HyperParameters
from collapipe_env.agents.learned.validation import Score, Validator
from collapipe_env.errors import DataError
from collapipe_env.evaluation.provenance import versions
from collapipe_env.files import write_text
from collapipe_env.scenario import Scenario, load_scenario

PAGE = Path(__file__).parents[1] / "docs" / "learned_agents.md"
EVERY = 10
"""Validations of a trial."""

Values = Mapping[str, Any]

START: Mapping[Algorithm, Values] = {
    "ppo": {
        "learning_rate": 1e-3,
        "rollout_steps": 32,
        "minibatch": 512,
        "epochs": 8,
        "gamma": 0.0,
        "clip_range": 0.2,
        "entropy_coefficient": 0.0,
        "max_gradient_norm": 0.5,
        "initial_log_std": -1.0,
        "hidden_units": (64, 64),
    },
    "sac": {
        "learning_rate": 1e-3,
        "minibatch": 256,
        "gradient_steps": 4,
        "gamma": 0.0,
        "tau": 0.01,
        "initial_entropy_coefficient": 0.02,
        "target_entropy_per_action": -1.0,
        "hidden_units": (64, 64),
    },
}
"""Values of trial 0."""

SPACE: Mapping[Algorithm, Mapping[str, Sequence[Any]]] = {
    "ppo": {
        "learning_rate": (3e-4, 6e-4, 1e-3, 2e-3, 3e-3),
        "rollout_steps": (16, 32, 64),
        "minibatch": (256, 512, 1024),
        "epochs": (4, 8, 12),
        "gamma": (0.0, 0.5, 0.9),
        "clip_range": (0.1, 0.2, 0.3),
        "entropy_coefficient": (0.0, 0.001, 0.005),
        "max_gradient_norm": (0.5, 2.0),
        "initial_log_std": (-1.5, -1.0, -0.5),
        "hidden_units": ((64, 64), (128, 128), (64, 64, 64)),
    },
    "sac": {
        "learning_rate": (3e-4, 1e-3, 2e-3),
        "minibatch": (128, 256, 512),
        "gradient_steps": (2, 4, 8),
        "gamma": (0.0, 0.5, 0.9),
        "tau": (0.005, 0.01, 0.03),
        "initial_entropy_coefficient": (0.002, 0.02),
        "target_entropy_per_action": (-1.0, -2.0, -3.0),
        "hidden_units": ((64, 64), (128, 128)),
    },
}
"""Values that the other trials draw from."""

RESULTS = ("seconds", "best_step", "delay_s", "energy_percent", "backlog", "priced_delay_s")


@dataclasses.dataclass(frozen=True)
class Options(Checked):
    """Try hyper-parameters of PPO or SAC at random, and keep every trial."""

    algo: Literal["ppo", "sac"] = "ppo"
    """Learning algorithm."""
    scenario: str = "medium"
    """A shipped scenario or a YAML file."""
    trials: Annotated[int, Between(1, 10_000)] = 24
    """Trials in all; a larger number continues the search."""
    steps: Annotated[int, Between(EVERY, 10**9)] = 300_000
    """Rounds that a trial trains on."""
    envs: Annotated[int, Between(1, 4096)] = 64
    """Environments that play at once."""
    reward: str = "lyapunov"
    """Reward of the training."""
    search_seed: Annotated[int, Between(0, 2**30)] = 0
    """Seed of the values that are drawn."""
    seed: Annotated[int, Between(0, 2**30)] = 0
    """Seed of every trial's training."""
    work: Path = Path("runs/tuning")
    """Folder of the trials, with a folder for each search."""
    no_page: bool = False
    """Leave the page in docs as it is."""

    @property
    def folder(self) -> Path:
        """Folder of this search."""
        return self.work / f"{Path(self.scenario).stem}-{self.algo}-{self.search_seed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that are missing, then write the table; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return command(Options, lambda options: run(options, given), __doc__, given)


def run(options: Options, given: Sequence[str]) -> None:
    """Do what the options ask for."""
    torch.set_num_threads(1)
    scenario = load_scenario(options.scenario)
    path = options.folder / "trials.csv"
    rows = read_rows(path)
    for trial in range(options.trials):
        settings = settings_of(options, trial)
        if trial in rows:
            require_same(rows[trial], settings, path)
            continue
        print(f"trial {trial + 1} of {options.trials}: {written(settings)}", flush=True)
        seconds, score = trained(options, scenario, trial)
        rows[trial] = {**settings, **results(seconds, score)}
        write_rows(path, rows)
        print(f"  priced delay {score.priced_delay:.3f} s, {seconds:.0f} s", flush=True)
    text = table(options, [rows[trial] for trial in range(options.trials)], reference(scenario))
    print(text)
    if not options.no_page:
        part = f"tuning {options.algo}"
        named = ", ".join(f"{name} {version}" for name, version in versions().items() if name in SHOWN)
        block = f"```bash\n{shlex.join(['python', 'tools/tune_agents.py', *given])}\n```"
        stamp = f"{block}\n\n{named}. Finished {time.strftime('%Y-%m-%d')}."
        write_parts(PAGE, {part: text, f"{part} command": stamp})
        print(f"wrote {PAGE}")


SHOWN = ("collapipe-env", "torch", "stable-baselines3")
"""Libraries named beside the table."""


def drawn(algorithm: Algorithm, search_seed: int, trial: int) -> dict[str, Any]:
    """Values of the searched fields in a trial.

    Args:
        algorithm: ``"ppo"`` or ``"sac"``.
        trial: Its number; 0 has the values of ``START``.
    """
    if trial == 0:
        return dict(START[algorithm])
    rng = np.random.default_rng([search_seed, trial])
    return {name: values[rng.integers(len(values))] for name, values in SPACE[algorithm].items()}


def parameters_of(options: Options, trial: int) -> HyperParameters:
    """Hyper-parameters of a trial; fields that are not searched have the package's defaults."""
    return PARAMETERS[options.algo](**drawn(options.algo, options.search_seed, trial))


def settings_of(options: Options, trial: int) -> dict[str, str]:
    """Everything that decides a trial, as text."""
    asked = {name: getattr(options, name) for name in ("algo", "scenario", "reward", "steps", "envs", "seed")}
    values = drawn(options.algo, options.search_seed, trial)
    return {"trial": str(trial), **{name: plain(value) for name, value in {**asked, **values}.items()}}


def trained(options: Options, scenario: Scenario, trial: int) -> tuple[float, Score]:
    """Train a trial, or continue it; returns its wall-clock time [s] and the score of its best version."""
    plan = TrainingPlan(
        scenario=scenario,
        algorithm=options.algo,
        parameters=parameters_of(options, trial),
        steps=options.steps,
        envs=options.envs,
        seed=options.seed,
        learner="surrogate",
        reward=options.reward,
        validate_every=options.steps // EVERY,
    )
    state = train(plan, TrainingFiles(options.folder / f"trial-{trial}"), say=lambda _: None)
    assert state.best is not None
    return state.seconds, state.best


def results(seconds: float, score: Score) -> dict[str, str]:
    """Figures of a trial, as text."""
    return {
        "seconds": f"{seconds:.0f}",
        "best_step": str(score.steps),
        "delay_s": f"{score.mean_delay:.4f}",
        "energy_percent": f"{100.0 * (score.energy_ratio - 1.0):.3f}",
        "backlog": f"{score.backlog:.3f}",
        "priced_delay_s": f"{score.priced_delay:.5f}",
    }


class _Reference:
    """DSSRA in the place of a policy to validate."""

    def __init__(self, scenario: Scenario) -> None:
        self.validator = Validator(scenario, 16)
        self._dssra = DSSRA(scenario)

    def predict(self, observation: Any, *, deterministic: bool = True) -> tuple[Any, None]:  # noqa: ARG002
        env = self.validator.env
        return env.codec.encode(self._dssra.allocate(env.state)), None


def reference(scenario: Scenario) -> Score:
    """Score of DSSRA on the validation episodes."""
    dssra = _Reference(scenario)
    return dssra.validator(dssra, 0, 0.0)


def table(options: Options, rows: Sequence[Mapping[str, str]], dssra: Score) -> str:
    """All trials in Markdown, the best first, with priced delays beside those of DSSRA.

    Args:
        options: The options, which name the searched fields.
        rows: The trials.
        dssra: Score of DSSRA on the same episodes.
    """
    fields = list(SPACE[options.algo])
    heads = (
        "trial",
        *fields,
        "minutes",
        "priced delay (s)",
        "against DSSRA (%)",
        "delay (s)",
        "over budget (%)",
    )
    body = [
        (
            row["trial"],
            *(row[name] for name in fields),
            f"{float(row['seconds']) / 60.0:.1f}",
            f"{float(row['priced_delay_s']):.3f}",
            f"{100.0 * (float(row['priced_delay_s']) / dssra.priced_delay - 1.0):+.2f}",
            f"{float(row['delay_s']):.3f}",
            f"{float(row['energy_percent']):+.2f}",
        )
        for row in sorted(rows, key=lambda row: float(row["priced_delay_s"]))
    ]
    return (
        f"{markdown_table(heads, body)}\n\n`{options.scenario}`, {options.steps:,} rounds each, the best of "
        f"{EVERY} versions on 16 validation episodes, seed {options.seed}. DSSRA there: "
        f"priced delay {dssra.priced_delay:.3f} s, delay {dssra.mean_delay:.3f} s, "
        f"{100.0 * (dssra.energy_ratio - 1.0):+.2f} % over budget. "
        "Minutes are those of one process on a busy machine."
    )


def plain(value: Any) -> str:
    """A value as text: widths with a blank between them."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def written(settings: Mapping[str, str]) -> str:
    """Settings as one line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "trial")


def read_rows(path: Path) -> dict[int, dict[str, str]]:
    """Finished trials by number; none where there is no file.

    Raises:
        DataError: If the file is not a table of trials.
    """
    if not path.exists():
        return {}
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    try:
        found = {int(row["trial"]): row for row in rows}
        for row in rows:
            (
                float(row["priced_delay_s"]),
                float(row["delay_s"]),
                float(row["energy_percent"]),
                float(row["seconds"]),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a table of trials ({error!r}): move it away, or choose --work"
        ) from None
    return found


def write_rows(path: Path, rows: Mapping[int, Mapping[str, str]]) -> None:
    """Write all finished trials."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(next(iter(rows.values()))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[trial] for trial in sorted(rows))
    write_text(path, text.getvalue())


def require_same(row: Mapping[str, str], settings: Mapping[str, str], path: Path) -> None:
    """Refuse a folder with trials of another search.

    Raises:
        DataError: Names the first setting that differs.
    """
    for name, value in settings.items():
        if row.get(name) != value:
            raise DataError(
                f"{path}: trial {settings['trial']} has {name} = {row.get(name)}, this search has {value}: "
                "choose another --work"
            )


if __name__ == "__main__":
    sys.exit(main())
