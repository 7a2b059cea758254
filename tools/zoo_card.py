"""The card of an agent of the zoo, made from the record of its training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from collapipe_env.agents.learned.agent_file import AgentRecord
from collapipe_env.zoo.shipped_agents import PREFIX, ShippedAgent


def card(agent: ShippedAgent, record: AgentRecord, weights: int, notes: str) -> str:
    """Return the card as Markdown.

    Args:
        agent: Entry of the index.
        record: Record in the agent's file.
        weights: Number of its weights.
        notes: Text that is added at the end.
    """
    training = record.training
    facts = {
        "algorithm": record.algorithm,
        "trained on": f"`{record.trained_on}`",
        "seed": _shown(training.get("seed")),
        "steps": (
            f"{record.steps:,} for this version; the training was set to "
            f"{_shown(training.get('steps', record.steps))}"
        ),
        "seconds": _shown(training.get("seconds")),
        "environments": _shown(training.get("envs")),
        "learner, reward": f"{_shown(training.get('learner'))}, {_shown(training.get('reward'))}",
        "file": f"`{agent.file}`, {weights:,} weights, {agent.size:,} bytes",
        "SHA-256": f"`{agent.sha256}`",
        "written by": f"collapipe-env {record.package_version}",
    }
    parts = [
        f"# {agent.name}",
        agent.description,
        _table(("", ""), list(facts.items())),
        "## Figures",
        f"{agent.figures}.",
        "## Training",
        f"```bash\n{agent.command}\n```",
        "Hyper-parameters:",
        f"```json\n{json.dumps(record.hyperparameters, indent=2)}\n```",
    ]
    if record.systems:
        parts += ["Systems that it was trained on:", f"```json\n{json.dumps(record.systems, indent=2)}\n```"]
    if record.history:
        parts += ["Validations during training, oldest first:", curve(record.history)]
    parts += [
        "## Reads and decides",
        _table(
            ("", "name", "shape"),
            [
                (kind, f"`{name}`", str(tuple(shape)))
                for kind, shapes in (("reads", record.features), ("decides", record.decisions))
                for name, shape in shapes.items()
            ],
        ),
        "## Limits of use",
        _limits(agent, record),
    ]
    return "\n\n".join([*parts, *([notes.strip()] if notes.strip() else [])]) + "\n"


def curve(history: Sequence[Mapping[str, Any]]) -> str:
    """The validations as a table, one per row.

    Args:
        history: Validations as a checkpoint holds them.
    """
    names = list(dict.fromkeys(name for entry in history for name in entry))
    return _table(names, [[_shown(entry.get(name)) for name in names] for entry in history])


def best_of(history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The validation with the smallest objective, which training keeps as the best; the first if equal.

    Args:
        history: Validations; those without an objective do not count.
    """
    judged = [entry for entry in history if isinstance(entry.get("objective"), int | float)]
    return min(judged, key=lambda entry: float(entry["objective"]), default=None)


def validation_figures(record: AgentRecord) -> str:
    """The figures of the best validation in one line; nothing if they are not recorded.

    Args:
        record: Record in the agent's file.
    """
    best = best_of(record.history)
    rounds = record.scenario.get("dynamics", {}).get("rounds")
    episodes = record.training.get("validation_episodes")
    if best is None or rounds is None or episodes is None or not {"mean_delay", "energy_ratio"} <= set(best):
        return ""
    energy = 100.0 * (best["energy_ratio"] - 1.0)
    return (
        f"round delay {best['mean_delay']:.2f} s, worst node's energy {energy:+.1f} % against its budget "
        f"({episodes} validation episodes of {rounds} rounds)"
    )


def _limits(agent: ShippedAgent, record: AgentRecord) -> str:
    where = (
        "It plays only scenarios whose observations and decisions are exactly those in the table above, in "
        "these sizes; others are refused. It was not measured on scenarios of these sizes with other radios, "
        "devices, budgets or longer episodes."
        if record.scenario
        else f"It was trained on {record.trained_on}; other systems were measured only where this card says "
        "so."
    )
    return (
        f"{where} The file holds only what playing needs; its training cannot be resumed from it. Its "
        f"figures are from the package version above; `collapipe evaluate --agent {PREFIX}{agent.name}` "
        "measures it with the installed version."
    )


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "-" if value is None or value == "" else str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
