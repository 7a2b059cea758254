"""Produce every number and picture of ``docs/results.md`` with one command.

Run ``python tools/make_results.py``. It compares all schedulers and the agents of the zoo under the
surrogate learner and under real training, and writes tables and pictures into the page between its
markers; the words around them stay. Everything is resumable: run it again after Ctrl-C. ``--help`` lists how
to make it shorter.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from generated_parts import typed_command, write_parts

from collapipe_env.cli.main import main as collapipe
from collapipe_env.evaluation.gate import BELOW_LINE, gate_note
from collapipe_env.evaluation.labels import SERVER_NOTE, counted, label_of
from collapipe_env.ground.errors import DataError
from collapipe_env.schedulers import scheduler_names
from collapipe_env.zoo.shipped_agents import is_shipped

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results.md"
PICTURES = DOCS / "images" / "results"


@dataclass(frozen=True)
class Options:
    """Produce every number and picture of docs/results.md."""

    scenarios: tuple[str, ...] = ("small", "medium", "large")
    """Scenarios under the surrogate learner."""
    episodes: int = 10
    """Held-out episodes of each scheduler there."""
    rounds: int = 500
    """Rounds of an episode there."""
    torch_episodes: tuple[int, ...] = (10, 10, 10)
    """Held-out episodes under real training, one number for each scenario; 0 leaves the scenario out."""
    torch_rounds: int = 100
    """Rounds of an episode there."""
    agent_runs: int = 0
    """Own training runs of each scenario's agent under the surrogate learner, with seeds from 0; real
    training has the first. Without any, only the agents of the zoo play."""
    agent_steps: tuple[int, ...] = (600_000, 600_000, 260_000)
    """Rounds of training of each scenario's agent."""
    shipped: tuple[str, ...] = (
        "zoo:graph",
        "zoo:small-ppo",
        "zoo:medium-ppo",
        "zoo:large-ppo",
        "zoo:small-sac",
        "zoo:medium-sac",
    )
    """Agents of the zoo that also play, each where it can."""
    agents: Path = Path("runs/results/agents")
    """Folder of the trained agents."""
    work: Path = Path("runs/results")
    """Folder of the comparisons."""
    processes: int = 2
    """Worker processes."""
    page_only: bool = False
    """Write the page from the existing comparisons, and run nothing."""


def main() -> int:
    """Run what is missing, then write the page."""
    options = tyro.cli(Options, description=__doc__, config=(tyro.conf.FlagCreatePairsOff,))
    runs = comparisons(options)
    if not options.page_only:
        for scenario in options.scenarios:
            for seed in range(options.agent_runs):
                run("train", *training(options, scenario, seed))  # says so where it is done already
        for _, arguments in runs:
            run("compare", *arguments)
    write_page(options, runs)
    return 0


def agent_folder(options: Options, scenario: str, seed: int) -> Path:
    """Folder of a training run of the scenario's agent."""
    return options.agents / (f"{scenario}-ppo-seed{seed}" if seed else f"{scenario}-ppo")


def agent_of(options: Options, scenario: str, seed: int = 0) -> Path:
    """File of a training run of the scenario's agent."""
    return agent_folder(options, scenario, seed) / "checkpoints" / "best.safetensors"


def training(options: Options, scenario: str, seed: int) -> list[str]:
    """Arguments of a training run of the scenario's agent."""
    quick = ["--episodes", "1", "--learner", "surrogate", "--schedulers", "agent", "pipeline", "--no-figures"]
    steps = options.agent_steps[options.scenarios.index(scenario)]
    asked = ["--steps", str(steps), *(["--seed", str(seed)] if seed else [])]
    return ["--scenario", scenario, "--out", str(agent_folder(options, scenario, seed)), *asked, *quick]


def comparisons(options: Options) -> list[tuple[Path, list[str]]]:
    """Folder and arguments of every comparison: the surrogate's, then one for each number of episodes."""

    def arguments(folder: Path, names: list[str], seeds: int, rounds: int, learner: str) -> list[str]:
        trained = range(options.agent_runs if learner == "surrogate" else min(options.agent_runs, 1))
        agents = [f"{name}={agent_of(options, name, seed)}" for name in names for seed in trained]
        playing = (*scheduler_names(), *options.shipped)
        return [
            *("--scenarios", *names, "--schedulers", *playing, *(["--agent", *agents] if agents else [])),
            *("--episodes", str(seeds), "--rounds", str(rounds)),
            *("--learner", learner, "--processes", str(options.processes), "--out", str(folder)),
        ]

    folder = options.work / "surrogate"
    names = list(options.scenarios)
    runs = [(folder, arguments(folder, names, options.episodes, options.rounds, "surrogate"))]
    for seeds in sorted({*options.torch_episodes} - {0}, reverse=True):
        chosen = [n for n, s in zip(names, options.torch_episodes, strict=True) if s == seeds]
        folder = options.work / f"torch-{'-'.join(chosen)}"
        runs.append((folder, arguments(folder, chosen, seeds, options.torch_rounds, "real")))
    return runs


def run(command: str, *arguments: str) -> None:
    """Run a command of the package and stop where it fails."""
    print(f"$ collapipe {command} {shlex.join(arguments)}", flush=True)
    status = collapipe([command, *arguments])
    if status:
        raise SystemExit(status)


def write_page(options: Options, runs: list[tuple[Path, list[str]]]) -> None:
    """Fill the page's marked parts and copy the pictures."""
    summaries = [json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder, _ in runs]
    surrogate, torch = summaries[0], summaries[1:]
    parts = {
        "surrogate": "\n".join(scenario_table(surrogate, name) for name in options.scenarios),
        "stated": stated_table(surrogate),
        "torch": "\n".join(torch_table(summary, name) for summary in torch for name in summary["scenarios"]),
        "commands": commands(options, runs, surrogate),
    }
    try:
        write_parts(PAGE, parts)
    except DataError as error:
        raise SystemExit(str(error)) from None
    text = PAGE.read_text(encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for folder, _ in runs:
        prefix = "" if folder.name == "surrogate" else f"{folder.name}-"
        for picture in sorted((folder / "figures").glob("*.png")):
            if f"/{prefix}{picture.name})" in text:  # only what the page shows
                shutil.copyfile(picture, PICTURES / f"{prefix}{picture.name}")
    print(f"wrote {PAGE} and {PICTURES}/")


def number(estimate: dict[str, Any], digits: str, scale: float = 1.0) -> str:
    """A figure and its interval; null in JSON means that there is none."""
    if estimate["mean"] is None:
        return "–"
    mean = format(scale * estimate["mean"], digits)
    if estimate["low"] is None:
        return mean
    return f"{mean} ({format(scale * estimate['low'], digits)}…{format(scale * estimate['high'], digits)})"


def size_of(entry: dict[str, Any]) -> str:
    """Numbers of episodes and rounds."""
    return f"{counted(entry['episodes'], 'held-out episode')} of {entry['rounds']} rounds"


def scenario_table(summary: dict[str, Any], name: str) -> str:
    """Delays, energy and memory of all schedulers in one scenario."""
    entry = summary["scenarios"][name]
    lines = [
        f"### `{name}`\n\n{size_of(entry)}.\n",
        "| rank | scheduler | priced delay (s) | against DSSRA (%) | round delay (s) | p95 (s) "
        "| over budget (%) | backlog slope (%/round) | return per round | peak memory (MB) | decision (ms) |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    line_drawn = False
    # Schedulers over their energy budgets come last and have no place.
    for place, one in enumerate(sorted(entry["summary"], key=fails), 1):
        if fails(one) and not line_drawn:
            lines.append(f"| | *{' '.join(BELOW_LINE)}* |{' |' * 9}")
            line_drawn = True
        decision_ms = 1e3 * one["decision_s"]["mean"]
        lines.append(
            f"| {'–' if fails(one) else place} | {label(one)} "
            f"| {number(one['priced_delay'], '.2f')} | {number(one['difference'], '+.1f', 100.0)} "
            f"| {format(one['delay_mean']['mean'], '.2f')} | {format(one['delay_p95']['mean'], '.2f')} "
            f"| {format(100.0 * one['energy_excess']['mean'], '+.1f')} "
            f"| {number(one['backlog_slope'], '+.2f', 100.0)} "
            f"| {format(one['return_per_round']['mean'], '.3f')} "
            f"| {format(1e-6 * one['peak_memory_bytes']['mean'], '.0f')} "
            f"| {format(decision_ms, '.2f' if decision_ms < 10.0 else '.0f')} |"
        )
    # Agents of the zoo that were trained for another scenario are not worth a line.
    lines += [
        f"\n{who}: not possible: {why}" for who, why in entry["impossible"].items() if not is_shipped(who)
    ]
    lines.append(f"\n{gate_note(entry['rounds'], entry['scenario']['dynamics']['rounds'])}")
    return "\n".join(lines + note_below(entry)) + "\n"


def fails(one: dict[str, Any]) -> bool:
    """Whether a scheduler is over its energy budget."""
    return bool(one["gate"]["verdict"] == "failed")


def label(one: dict[str, Any]) -> str:
    """A scheduler's name with its marks."""
    return label_of(one["title"], one["server_blocks"], one["runs"])


def note_below(entry: dict[str, Any]) -> list[str]:
    """Meaning of a mark of schedulers, if any has it."""
    return [f"\n{SERVER_NOTE}"] if any(one["server_blocks"] for one in entry["summary"]) else []


def torch_table(summary: dict[str, Any], name: str) -> str:
    """Learning of all schedulers in one scenario."""
    entry = summary["scenarios"][name]
    target = "none" if entry["target_loss"] is None else f"{entry['target_loss']:.3f} nat"
    lines = [
        f"### `{name}`\n\n{size_of(entry)}; target loss: {target}.\n",
        "| scheduler | round delay (s) | simulated time to target (s) | final loss (nat) | accuracy (%) |",
        "|---|---:|---:|---:|---:|",
    ]
    for one in entry["summary"]:
        reached = one["time_to_target"]
        time = number(reached["seconds"], ".0f")
        if reached["reached"] < reached["episodes"]:
            time = f"{reached['reached']} of {reached['episodes']} reached it"
        lines.append(
            f"| {label(one)} | {number(one['delay_mean'], '.2f')} | {time} "
            f"| {number(one['final_loss'], '.3f')} | {number(one['metric'], '.1f', 100.0)} |"
        )
    return "\n".join(lines + note_below(entry)) + "\n"


def stated_table(summary: dict[str, Any]) -> str:
    """DSSRA against the systems that the paper names, in each scenario."""
    lines = [
        "| scenario | delay against PipeLine (even split) | against TITANIC | against VanillaFL "
        "| samples per second against VanillaFL | most memory of a device against VanillaFL |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, entry in summary["scenarios"].items():
        by_name = {one["scheduler"]: one for one in entry["summary"]}
        ours = by_name["dssra"]
        cells = []
        for other in ("pipeline", "titanic", "vanilla_fl"):
            if other not in by_name:
                cells.append("not possible")
                continue
            ratio = ours["delay_mean"]["mean"] / by_name[other]["delay_mean"]["mean"]
            cells.append(f"{100.0 * (ratio - 1.0):+.1f} %")
        if "vanilla_fl" in by_name:
            vanilla = by_name["vanilla_fl"]
            faster = vanilla["delay_mean"]["mean"] / ours["delay_mean"]["mean"]
            memory = ours["peak_memory_bytes"]["mean"] / vanilla["peak_memory_bytes"]["mean"]
            cells += [f"{100.0 * (faster - 1.0):+.0f} %", f"{100.0 * (memory - 1.0):+.0f} %"]
        else:
            cells += ["not possible"] * 2
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def commands(options: Options, runs: list[tuple[Path, list[str]]], summary: dict[str, Any]) -> str:
    """Commands that produced the page."""
    given = [argument for argument in sys.argv[1:] if argument != "--page-only"]
    lines = ["```bash", typed_command(["python", "tools/make_results.py", *given]), "# which runs"]
    trained = [(name, seed) for name in options.scenarios for seed in range(options.agent_runs)]
    lines += [typed_command(["collapipe", "train", *training(options, name, seed)]) for name, seed in trained]
    lines += [typed_command(["collapipe", "compare", *arguments]) for _, arguments in runs]
    shown = {name: version for name, version in summary["versions"].items() if name != "platform"}
    versions = ", ".join(f"{name} {version}" for name, version in shown.items())
    return "\n".join([*lines, "```", "", f"{versions}. Finished {summary['finished']}.", ""])


if __name__ == "__main__":
    sys.exit(main())
