"""Make generated parts of the documentation anew: ``python -m tools.docs heat/governors surrogate``.

``experiments.yaml`` lists all parts by page and name; a page's name makes all of its parts, and without names
the stale ones are made. Finished plays are kept in ``runs/docs``: after Ctrl-C the same command continues.
They belong to the package's sources: a change of these plays anew. ``--check`` plays nothing and lists what
is stale: each part holds a digest of its entry, of its study's file and ``digest()``, and of the shipped
scenarios, shipped agents and other entries that these name. It does not cover the code of simulator and
schedulers: after a change there that the golden trajectories show, name the parts. ``--quick`` plays least,
prints, and writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

# The modules of these folders import each other as they would in their own process.
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))
import grid_tables
import matplotlib as mpl
import numpy as np
from generated_parts import parts_of, write_parts
from matplotlib.image import imsave
from ruamel.yaml import YAML
from tqdm import tqdm

from collapipe_env.evaluation.plotting import RC, save
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.rendering.video import write_video
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import PRESETS
from collapipe_env.zoo.shipped_agents import is_shipped, shipped_agent

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
IMAGES = DOCS / "images"
FPS = 5.0
"""Pictures of an animation in a second."""
QUICK = {"episodes": 2, "rounds": 2}
"""Sizes with ``--quick``."""
NAMES = re.compile(r"[\w:./-]+")
"""Words of an entry that may be names of scenarios, agents or entries."""
QUOTED = re.compile(r'"([\w:-]+)"')
"""Such words in the file of a study."""
MADE_FROM = "<!-- made from {} -->"
"""Last line of a part, with the digest of what it was made from."""


@cache
def entries() -> Mapping[str, Mapping[str, Any]]:
    """All entries by ``page/part``."""
    pages = YAML(typ="safe").load(HERE / "experiments.yaml")
    return {f"{page}/{part}": entry for page, parts in pages.items() for part, entry in parts.items()}


def chosen(given: Sequence[str]) -> list[str]:
    """Names of the entries that are asked for: ``page/part``, or all parts of a page.

    Raises:
        ValueError: If there is no such page or part.
    """
    found = []
    for each in given:
        fits = [name for name in entries() if each in (name, name.partition("/")[0])]
        if not fits:
            page = each.partition("/")[0]
            near = [name for name in entries() if name.startswith(f"{page}/")]
            pages = dict.fromkeys(name.partition("/")[0] for name in entries())
            raise ValueError(f"there is no part {each!r}: choose from {', '.join(near or pages)}")
        found += fits
    return list(dict.fromkeys(name for name in found if "by" not in entries()[name]))


def page_of(name: str) -> Path:
    """The file of a page; the README stands beside the folder of the others."""
    return DOCS.parent / "README.md" if name == "README" else DOCS / f"{name}.md"


def function_of(entry: Mapping[str, Any]) -> Any:
    """The function of a study or a picture, ``module:name``."""
    module, _, name = str(entry.get("study") or entry["picture"]).partition(":")
    return getattr(importlib.import_module(f"studies.{module}"), name)


@cache
def scenario_of(base: str) -> str:
    """Digest of a shipped scenario."""
    return scenario_digest(load_scenario(base))


def digest(name: str) -> str:
    """Digest of what a part is made from, without playing."""
    entry = entries()[name]
    text = json.dumps(entry, sort_keys=True)
    found, names = hashlib.sha256(text.encode()), set(NAMES.findall(text))
    if "rows" in entry:
        names.update(play.base for play in grid_tables.plays(entry))
    else:
        module = str(entry.get("study") or entry["picture"]).partition(":")[0]
        source = (HERE / "studies" / f"{module}.py").read_text(encoding="utf-8")
        names.update(QUOTED.findall(source))
        found.update(source.encode())
        found.update(getattr(importlib.import_module(f"studies.{module}"), "digest", bytes)())
    named = sorted(names)
    made_of = [
        *(scenario_of(word) for word in named if word in PRESETS),
        *(shipped_agent(word).sha256 for word in named if is_shipped(word)),
        *(digest(word) for word in named if word in entries() and word != name),
    ]
    found.update("".join(made_of).encode())
    return found.hexdigest()[:8]


def stale() -> Iterator[str]:
    """Names of the parts that were not made from their present entries, or are missing in their pages."""
    for name, entry in entries().items():
        page, _, part = name.partition("/")
        if not {"by", "picture"} & set(entry):
            content = parts_of(page_of(page)).get(part, "")
            if MADE_FROM.format(digest(name)) not in content:
                yield name


def strangers() -> Iterator[str]:
    """Parts of pages without an entry."""
    for page in (*sorted(DOCS.glob("*.md")), page_of("README")):
        for part in parts_of(page):
            if f"{page.stem}/{part}" not in entries():
                yield f"{page.stem}/{part}"


def caption(name: str) -> str:
    """The command of a part, and what its entry says about it."""
    entry = entries()[name]
    used = {"torch": version("torch"), "machine": platform.machine()}
    about = str(entry.get("caption", "")).format(**entry, **used)
    return f"`python -m tools.docs {name}` {about}".strip()


def make(name: str, quick: bool) -> str:
    """Play an entry, and return its part, or the picture's place."""
    entry = entries()[name]
    with mpl.rc_context(RC):
        if "picture" in entry:
            place = IMAGES / name.partition("/")[2]
            return str(place) if quick else drawn(function_of(entry)(**entry.get("of", {})), place)
        if "rows" in entry:
            text = grid_tables.table({**entry, **QUICK} if quick else entry, name)
        else:
            text = function_of(entry)(entry, quick)
    if quick:
        return f"{text.strip()}\n\n({name} with least effort: no figures of this part)"
    return f"{text.strip()}\n\n{caption(name)}\n{MADE_FROM.format(digest(name))}"


def drawn(picture: Any, place: Path) -> str:
    """Save a figure, an image as an array, or a list of them as an animation; returns its place."""
    if isinstance(picture, list):
        write_video(picture, place, fps=FPS)
    elif isinstance(picture, np.ndarray):
        imsave(place, picture)
    else:
        save(picture, place)
    return str(place)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make parts, or check them; returns the exit status: 1 with stale parts, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="page, or page/part (the stale parts)")
    parser.add_argument("--check", action="store_true", help="play nothing, list what is stale")
    parser.add_argument("--quick", action="store_true", help="play least, print, write nothing")
    given = parser.parse_args(arguments)
    try:
        names = chosen(given.names) if given.names else list(stale())
    except ValueError as error:
        parser.error(str(error))
    if given.check:
        for name in strangers():
            print(f"{name} has no entry in tools/experiments.yaml: add one, or remove the part")
        for name in (old := [name for name in stale() if name in names]):
            print(f"{name} is not made from its present entry: python -m tools.docs {name}")
        return 1 if old or list(strangers()) else 0
    try:
        for name in (bar := tqdm(names, unit="part", disable=None)):
            bar.set_description(name)
            made = make(name, given.quick)
            if given.quick or "picture" in entries()[name]:
                print(made, flush=True)
            else:
                page, _, part = name.partition("/")
                write_parts(page_of(page), {part: made})
                print(f"wrote {name}", flush=True)
    except CollaPipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: finished plays are kept, and the same command continues", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
