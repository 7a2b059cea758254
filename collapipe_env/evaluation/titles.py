"""Unique titles of the user's own schedulers in tables and progress lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from collapipe_env.evaluation.declared_sight import title_of
from collapipe_env.evaluation.scheduler_loading import (
    make_scheduler,
    own_factory,
    package_title,
)
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import LEARNED, Factory


def own_titles(
    names: Sequence[str], scenario: Scenario, agent: Path | None, factories: Mapping[str, Factory]
) -> dict[str, str]:
    """Titles of the user's own schedulers among those that play together, made unique by the typed names.

    Args:
        names: Names of all schedulers that play.
        scenario: The scenario that they schedule.
        agent: File of the learned scheduler.
        factories: Schedulers given as Python objects, by name.
    """
    own = [name for name in names if own_factory(name, factories) is not None]
    if not own:
        return {}
    titles = {}
    for name in names:
        try:
            if name in own or name == LEARNED:
                titles[name] = title_of(make_scheduler(name, scenario, agent, factories), scenario)
            else:
                titles[name] = package_title(name)
        except CollaPipeError:
            continue  # it cannot play, which is reported when it should
    told = told_apart(titles, [name for name in own if name in titles])
    return {name: told[name] for name in own if name in told}


def told_apart(titles: Mapping[str, str], own: Sequence[str]) -> dict[str, str]:
    """The titles, with the typed name added to those of the user's own schedulers that are not unique.

    Args:
        titles: Title of each scheduler by its name.
        own: Names of the user's own schedulers among them.
    """
    counts = Counter(titles.values())
    clashing = [name for name in own if counts[titles[name]] > 1]
    last = {name: name.replace("\\", "/").rpartition("/")[2] for name in clashing}
    short = [f"{titles[name]} ({last[name]})" for name in clashing]
    # The folders are left out where the files alone are clear.
    clear = len({*short, *counts}) == len(short) + len(counts)
    return {**titles, **{name: f"{titles[name]} ({last[name] if clear else name})" for name in clashing}}
