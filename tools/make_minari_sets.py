"""Record data sets of two ids of the suite for offline learning with Minari.

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
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from generated_parts import markdown_table
from pydantic import BaseModel, Field
from tqdm import tqdm

from collapipe_env.agents.learned.agent_loading import load_agent
from collapipe_env.envs.env import CollaPipeEnv
from collapipe_env.envs.suite import SUITE
from collapipe_env.evaluation.scheduler_loading import make_scheduler
from collapipe_env.ground.errors import MissingPackageError, ScenarioError
from collapipe_env.ground.files import write_text
from collapipe_env.ground.interrupts import uninterrupted
from collapipe_env.physics.allocation import Allocation
from collapipe_env.scenario import load_scenario
from collapipe_env.schedulers import scheduler_seed
from collapipe_env.zoo.shipped_agents import shipped_agents

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import command

ID = "CollaPipeSurrogate-v0"
FIRST_SEED = 3_000_000
"""Seed of the first episode, away from those of trainings, validations and held-out episodes."""
GRAPH, PPO = "graph", "ppo"
SETS = {"small": ("dssra", GRAPH, PPO, "random"), "medium-thermal": ("dssra", "dssra-plus", "random")}
"""Schedulers whose episodes are recorded unless others are named, by scenario."""
HEADS = (
    "set", "episodes", "rounds", "mean return", "round delay (s)", "energy above budgets (budgets a round)",
    "MB", "SHA-256 of its arrays",
)  # fmt: skip
CARD = """# Data sets for offline learning

Recorded by `{command}` with {versions}.

Every set holds whole episodes of one scheduler in one scenario of collapipe-env: flat observations,
actions of the box, the default reward, ends, and the information of every step (`delay` in seconds,
`cost` in budgets, `backlog`, `loss` in nats; row 0 is that of the reset). The learner is the surrogate.
Episode i begins with seed {seed} + i in every set, so all schedulers met the same systems;
`collapipe evaluate` plays other seeds. Plans of DSSRA were encoded as actions, which keeps whole
numbers exactly and powers and shares to 1e-6.

Load one with

```python
import os
os.environ["MINARI_DATASETS_PATH"] = "{folder}"
import collapipe_env, minari
dataset = minari.load_dataset("{example}")
env = dataset.recover_environment()
```

{table}

The checksum is of the arrays in their order, not of the files, which hold dates. Nothing in the sets comes
from outside: channels, loads and layouts are drawn by the simulator. License: MIT.
"""


class Options(BaseModel):
    """Record data sets for offline learning."""

    out: Path = Path("runs/minari")
    """Folder of the sets and their card; set MINARI_DATASETS_PATH to it to load them."""
    scenarios: tuple[str, ...] = tuple(SETS)
    """Scenarios."""
    schedulers: tuple[str, ...] = ()
    """Schedulers: names, graph (of the zoo) or ppo (of it, or given with --ppo); by default all that suit."""
    episodes: Annotated[int, Field(ge=1)] = 200
    """Episodes of each set, at least 1."""
    ppo: tuple[str, ...] = ()
    """Agents for scenarios that have none in the zoo, each as SCENARIO=FILE."""


def given_agents(options: Options) -> dict[str, Path]:
    """Files of ``SCENARIO=FILE`` by scenario.

    Raises:
        ScenarioError: If one is of another form, or its scenario is not recorded.
    """
    found = {}
    for text in options.ppo:
        scenario, mark, path = text.partition("=")
        if not (scenario and mark and path):
            raise ScenarioError(f"--ppo {text!r}: give it as SCENARIO=FILE, small-wild=best.safetensors say")
        if scenario not in options.scenarios:
            raise ScenarioError(f"--ppo is given for {scenario!r}, which --scenarios does not list: add it")
        found[scenario] = Path(path)
    return found


def scheduler_of(name: str, scenario: str, agents: dict[str, Path]) -> Any | None:
    """A scheduler by its name in the options; ``None`` for PPO where there is no agent for the scenario."""
    whole = load_scenario(scenario)
    if name == PPO and scenario in agents:
        return load_agent(agents[scenario], whole)
    if name == PPO and f"{scenario}-ppo" not in shipped_agents():
        return None
    shipped = {GRAPH: "zoo:graph", PPO: f"zoo:{scenario}-ppo"}
    return make_scheduler(shipped.get(name, name), whole)


def record(minari: Any, name: str, scheduler: Any, scenario: str, episodes: int) -> None:
    """Play episodes with a scheduler and store them as one data set."""
    kind = getattr(scheduler, "observation", "flat")
    known = {entry.scenario: entry.id for entry in SUITE if entry.learner == "surrogate"}
    made = gym.make(known[scenario]) if scenario in known else gym.make(ID, scenario=scenario)
    env = minari.DataCollector(made, record_infos=True)
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
    agent = str(scheduler.name)
    with uninterrupted():
        env.create_dataset(
            dataset_id=name,
            algorithm_name=agent,
            description=f"{episodes} episodes of {agent} on {scenario}, surrogate, from seed {FIRST_SEED} on",
            requirements=["collapipe-env"],
        )


def digest(dataset: Any) -> str:
    """SHA-256 of a set's content, the arrays of all episodes in order. Files differ by their dates."""
    found = hashlib.sha256()
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    for episode in dataset.iterate_episodes():
        infos = [episode.infos[name] for name in sorted(episode.infos)]
        for array in map(np.ascontiguousarray, (*(getattr(episode, name) for name in names), *infos)):
            found.update(f"{array.dtype.str}{array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()


def facts(dataset: Any) -> list[str]:
    """Cells of a set in the card's table."""
    episodes = list(dataset.iterate_episodes())
    size = sum(file.stat().st_size for file in Path(dataset.spec.data_path).rglob("*") if file.is_file())
    return [
        f"`{dataset.id}`",
        f"{dataset.total_episodes:,}",
        f"{dataset.total_steps:,}",
        f"{np.mean([np.sum(one.rewards) for one in episodes]):.2f}",
        # The first information is that of the reset.
        f"{np.mean([np.mean(one.infos['delay'][1:]) for one in episodes]):.2f}",
        f"{np.mean([np.mean(one.infos['cost'][1:]) for one in episodes]):.3f}",
        f"{size / 1e6:.1f}",
        f"`{digest(dataset)}`",
    ]


def card(datasets: Sequence[Any], options: Options) -> str:
    """The card of the sets."""
    packages = ("collapipe-env", "gymnasium", "minari", "numpy", "torch")
    return CARD.format(
        command=" ".join(["python tools/make_minari_sets.py", *sys.argv[1:]]),
        versions=", ".join(f"{name} {version(name)}" for name in packages),
        seed=FIRST_SEED,
        folder=options.out.as_posix(),
        example=datasets[0].id,
        table=markdown_table(HEADS, [facts(dataset) for dataset in datasets]),
    )


def run(options: Options) -> None:
    """Record what is missing, and write the card."""
    agents = given_agents(options)
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["MINARI_DATASETS_PATH"] = str(options.out.resolve())
    try:
        import h5py  # noqa: F401
        import jax  # noqa: F401
        import minari
    except ImportError as error:
        what = f"Minari with JAX and h5py ({error.name})"
        raise MissingPackageError.of("data sets", what, "minari") from None
    kept = []
    for scenario in options.scenarios:
        for name in options.schedulers or SETS.get(scenario, SETS["small"]):
            title = f"collapipe/{scenario}/{name}-v0"
            if title in minari.list_local_datasets():
                found = minari.load_dataset(title).total_episodes
                if found != options.episodes:
                    raise ScenarioError(
                        f"{title} in {options.out} has {found} episodes, not {options.episodes}: choose "
                        "another --out, or delete it"
                    )
                print(f"{title} already exists")
            elif (scheduler := scheduler_of(name, scenario, agents)) is None:
                print(f"{title} left out: the zoo has none; give one with --ppo {scenario}=FILE")
                continue
            else:
                record(minari, title, scheduler, scenario, options.episodes)
            kept.append(minari.load_dataset(title))
    if not kept:
        raise ScenarioError("nothing to record: every set was left out")
    write_text(options.out / "README.md", card(kept, options))
    print(f"{len(kept)} sets and their card are in {options.out}/")


main = command(Options, run, __doc__)

if __name__ == "__main__":
    sys.exit(main())
