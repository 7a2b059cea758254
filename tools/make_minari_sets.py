"""Record data sets for offline learning with Minari: DSSRA, the graph net, PPO and random plans.

Every set holds episodes of one scheduler in one scenario, with the information of every step. Finished sets
are kept: the same command continues with those that are missing. A card says what each set holds. Run::

    python tools/make_minari_sets.py
    python tools/make_minari_sets.py --ppo small-wild=runs/small-wild-ppo-seed0/checkpoints/best.safetensors
    python tools/make_minari_sets.py --scenarios medium --schedulers dssra random --episodes 50
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from generated_parts import markdown_table
from tqdm import tqdm

from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import CollaPipeError, MissingPackageError, ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.ground.interrupts import uninterrupted
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_seed
from collapipe_env.zoo.shipped_agents import shipped_agents

ID = "CollaPipeSurrogate-v0"
FIRST_SEED = 3_000_000
"""Seed of the first episode, away from those of trainings, validations and held-out episodes."""
VERSION = 0
GRAPH = "graph"
PPO = "ppo"


@dataclass(frozen=True)
class Options:
    """Record data sets for offline learning."""

    out: Path = Path("runs/minari")
    """Folder of the sets and their card; set MINARI_DATASETS_PATH to it to load them."""
    scenarios: tuple[str, ...] = ("small", "small-wild")
    """Scenarios."""
    schedulers: tuple[str, ...] = ("dssra", GRAPH, PPO, "random")
    """Schedulers: names, graph (of the zoo), or ppo (of the zoo, or given with --ppo)."""
    episodes: int = 50
    """Episodes of each set."""
    ppo: tuple[str, ...] = ()
    """Agents for scenarios that have none in the zoo, each as SCENARIO=FILE."""


def given_agents(texts: Sequence[str]) -> dict[str, Path]:
    """Read ``SCENARIO=FILE``.

    Args:
        texts: Values of the option.

    Raises:
        ScenarioError: If one is of another form.
    """
    found = {}
    for text in texts:
        scenario, mark, path = text.partition("=")
        if not (scenario and mark and path):
            raise ScenarioError(f"--ppo {text!r}: give it as SCENARIO=FILE, small-wild=best.safetensors say")
        found[scenario] = Path(path)
    return found


def scheduler_of(name: str, scenario: str, agents: dict[str, Path]) -> Any | None:
    """Return a scheduler; ``None`` for PPO where there is no agent for the scenario.

    Args:
        name: Its name in the options.
        scenario: The scenario's name.
        agents: Agents that were given.
    """
    whole = load_scenario(scenario)
    if name == GRAPH:
        return make_scheduler("zoo:graph", whole)
    if name != PPO:
        return make_scheduler(name, whole)
    if scenario in agents:
        return load_agent(agents[scenario], whole)
    shipped = f"{scenario}-ppo"
    return make_scheduler(f"zoo:{shipped}", whole) if shipped in shipped_agents() else None


def record(minari: Any, name: str, scheduler: Any, scenario: str, episodes: int, agent: str) -> None:
    """Play episodes with a scheduler and store them as one data set.

    Args:
        minari: The package.
        name: Id of the set.
        scenario: The scenario's name.
        episodes: Number of episodes.
        agent: Name of the agent that played, for the record.
    """
    kind = getattr(scheduler, "observation", "flat")
    env = minari.DataCollector(gym.make(ID, scenario=scenario), record_infos=True)
    inner = env.unwrapped
    assert isinstance(inner, CollaPipeEnv)
    # Agents that read graphs are shown the same rounds as graphs.
    twin = None if kind == "flat" else CollaPipeEnv(scenario=scenario, learner="surrogate", observation=kind)
    for episode in tqdm(range(episodes), desc=name):
        observation, _ = env.reset(seed=FIRST_SEED + episode)
        seen = observation if twin is None else twin.reset(seed=FIRST_SEED + episode)[0]
        scheduler.reset(scheduler_seed(episode))
        over = False
        while not over:
            rows = seen[None] if isinstance(seen, np.ndarray) else {key: a[None] for key, a in seen.items()}
            plan = scheduler.act(rows, inner.state)
            action = inner.codec.encode(plan) if isinstance(plan, Allocation) else np.asarray(plan)
            action = np.clip(action[0], -1.0, 1.0).astype(np.float32)
            observation, _, terminated, truncated, _ = env.step(action)
            seen = observation if twin is None else twin.step(action)[0]
            over = terminated or truncated
    with uninterrupted():
        env.create_dataset(
            dataset_id=name,
            algorithm_name=agent,
            description=f"{episodes} episodes of {agent} on {scenario}, surrogate, from seed {FIRST_SEED} on",
            requirements=["collapipe-env"],
        )


def digest(dataset: Any) -> str:
    """SHA-256 of a set's content, the arrays of all episodes in order. Files differ by their dates.

    Args:
        dataset: The set.
    """
    found = hashlib.sha256()
    for episode in dataset.iterate_episodes():
        for array in (
            episode.observations,
            episode.actions,
            episode.rewards,
            episode.terminations,
            episode.truncations,
            *(episode.infos[name] for name in sorted(episode.infos)),
        ):
            array = np.ascontiguousarray(array)
            found.update(f"{array.dtype.str}{array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def facts(dataset: Any) -> list[str]:
    """Cells of a set in the card's table.

    Args:
        dataset: The set.
    """
    returns, delays, costs = [], [], []
    for episode in dataset.iterate_episodes():
        returns.append(float(np.sum(episode.rewards)))
        delays.append(float(np.mean(episode.infos["delay"][1:])))  # the first is that of the reset
        costs.append(float(np.mean(episode.infos["cost"][1:])))
    size = sum(file.stat().st_size for file in Path(dataset.spec.data_path).rglob("*") if file.is_file())
    return [
        f"`{dataset.id}`",
        f"{dataset.total_episodes:,}",
        f"{dataset.total_steps:,}",
        f"{np.mean(returns):.2f}",
        f"{np.mean(delays):.2f}",
        f"{np.mean(costs):.3f}",
        f"{size / 1e6:.1f}",
        f"`{digest(dataset)}`",
    ]


HEADS = (
    "set", "episodes", "rounds", "mean return", "round delay (s)", "energy above budgets (budgets a round)",
    "MB", "SHA-256 of its arrays",
)  # fmt: skip


def card(datasets: Sequence[Any], options: Options, command: str) -> str:
    """Return the card of the sets.

    Args:
        datasets: The sets.
        command: Command that made them.
    """
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("collapipe-env", "gymnasium", "minari", "numpy", "torch")
    )
    return f"""# Data sets for offline learning

Recorded by `{command}` with {versions}.

Every set holds whole episodes of one scheduler in one scenario of collapipe-env: flat observations,
actions of the box, the default reward, ends, and the information of every step (`delay` in seconds,
`cost` in budgets, `backlog`, `loss` in nats; row 0 is that of the reset). The learner is the surrogate.
Episode i begins with seed {FIRST_SEED} + i in every set, so all schedulers met the same systems;
`collapipe evaluate` plays other seeds. Plans of DSSRA were encoded as actions, which keeps whole
numbers exactly and powers and shares to 1e-6.

Load one with

```python
import os
os.environ["MINARI_DATASETS_PATH"] = "{options.out.as_posix()}"
import collapipe_env, minari
dataset = minari.load_dataset("{datasets[0].id}")
env = dataset.recover_environment()
```

{markdown_table(HEADS, [facts(dataset) for dataset in datasets])}

The checksum is of the arrays in their order, not of the files, which hold dates. Nothing in the sets comes
from outside: channels, loads and layouts are drawn by the simulator. License: MIT.
"""


def main(options: Options, command: str) -> None:
    """Record what is missing, and write the card."""
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["MINARI_DATASETS_PATH"] = str(options.out.resolve())
    try:
        import h5py  # noqa: F401
        import jax  # noqa: F401
        import minari
    except ImportError as error:
        raise MissingPackageError.of(
            "data sets", f"Minari with JAX and h5py ({error.name})", "minari"
        ) from None
    agents = given_agents(options.ppo)
    for scenario in agents:
        if scenario not in options.scenarios:
            raise ScenarioError(f"--ppo is given for {scenario!r}, which --scenarios does not list: add it")
    kept = []
    for scenario in options.scenarios:
        for name in options.schedulers:
            title = f"collapipe/{scenario}/{name}-v{VERSION}"
            if title in minari.list_local_datasets():
                dataset = minari.load_dataset(title)
                if dataset.total_episodes != options.episodes:
                    raise ScenarioError(
                        f"{title} in {options.out} has {dataset.total_episodes} episodes, not "
                        f"{options.episodes}: choose another --out, or delete it"
                    )
                print(f"{title} already exists")
            else:
                scheduler = scheduler_of(name, scenario, agents)
                if scheduler is None:
                    print(f"{title} left out: the zoo has none; give one with --ppo {scenario}=FILE")
                    continue
                record(minari, title, scheduler, scenario, options.episodes, str(scheduler.name))
                dataset = minari.load_dataset(title)
            kept.append(dataset)
    if not kept:
        raise ScenarioError("nothing to record: every set was left out")
    write_text(options.out / "README.md", card(kept, options, command))
    print(f"{len(kept)} sets and their card are in {options.out}/")


if __name__ == "__main__":
    try:
        main(
            tyro.cli(Options, description=__doc__),
            " ".join(["python tools/make_minari_sets.py", *sys.argv[1:]]),
        )
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped: finished sets are kept, and the same command resumes", file=sys.stderr)
        sys.exit(130)
