"""Unique titles of the user's own schedulers in tables and progress lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from collapipe_env.evaluation.declared_sight import title_of
from collapipe_env.evaluation.scheduler_loading import make_scheduler, own_factory, package_title
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED, Factory


def own_titles(
    names: Sequence[str], scenario: Scenario, agent: Path | None, factories: Mapping[str, Factory]
) -> dict[str, str]:
    """Titles of the user's own schedulers among those that play together, made unique by the typed names.

    Args:
        agent: File of the learned scheduler.
        factories: Schedulers given as Python objects, by name.
    """
    own = [name for name in names if own_factory(name, factories) is not None]
    titles = {}
    for name in names if own else ():
        try:
            if name in own or name == LEARNED:
                titles[name] = title_of(make_scheduler(name, scenario, agent, factories), scenario)
            else:
                titles[name] = package_title(name)
        except CollaPipeError:
            continue  # it cannot play, which is reported when it should
    own = [name for name in own if name in titles]
    counts = Counter(titles.values())
    last = {n: n.replace("\\", "/").rpartition("/")[2] for n in own if counts[titles[n]] > 1}
    short = [f"{titles[name]} ({file})" for name, file in last.items()]
    # The folders are left out where the files alone are clear.
    clear = len({*short, *counts}) == len(short) + len(counts)
    added = {name: f" ({file if clear else name})" for name, file in last.items()}
    return {name: f"{titles[name]}{added.get(name, '')}" for name in own}
