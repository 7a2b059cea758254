"""Play, and write generated tables of the documentation.

Run ``python tools/make_tables.py heat server``, say; without names it makes all tables, which takes half an
hour. Each module of ``tables`` names its page, and its parts with what they show; it may be run with some of
its parts alone, as ``decisions/openings``. ``mobility`` and ``recomputation`` take seconds, ``heat`` and
``server`` half a minute, ``channel``, ``clocks`` and ``traces`` three minutes, ``decisions`` a quarter of an
hour.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from generated_parts import write_parts
from tqdm import tqdm

DOCS = Path(__file__).parents[1] / "docs"
NAMES = sorted(path.stem for path in (Path(__file__).parent / "tables").glob("[!_]*.py"))


def chosen(given: Sequence[str]) -> list[tuple[str, str]]:
    """Module and part of every table that is asked for.

    Args:
        given: Names of modules, or ``module/part``; all where there is none.

    Raises:
        ValueError: If there is no such table.
    """
    found = []
    for each in given or NAMES:
        name, _, part = each.partition("/")
        parts = import_module(f"tables.{name}").PARTS if name in NAMES else {}
        wanted = [part] if part else list(parts)
        if not wanted or not set(wanted) <= set(parts):
            raise ValueError(f"there is no table {each!r}: choose from {', '.join(parts or NAMES)}")
        found += [(name, one) for one in wanted]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Make tables and write them.

    Args:
        arguments: Command line; that of this process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="tables to make anew; all by default")
    try:
        wanted = chosen(parser.parse_args(arguments).tables)
    except ValueError as error:
        parser.error(str(error))
    for name, part in tqdm(wanted, unit="table", disable=None):
        module = import_module(f"tables.{name}")
        make, about = module.PARTS[part]
        text = f"{make()}\n\n`python tools/make_tables.py {name}` {about}"
        write_parts(DOCS / module.PAGE, {part: text})
        print(f"wrote {part} into {DOCS / module.PAGE}", flush=True)


if __name__ == "__main__":
    main()
