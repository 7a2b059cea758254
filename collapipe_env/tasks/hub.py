"""Data sets of the Hugging Face hub by name, for machines that are online (extra ``hub``).

``hf:NAME`` or ``hf:NAME:CONFIG`` names a data set of the hub, or a local folder that the ``datasets`` library
wrote or can read. Versions of that library from 4.0 on, which the extra requires, run no code from the hub.
Its splits become tables, which are treated like those of local files: splits are found by name, and missing
parts are taken from the training part by a fixed random choice (see :mod:`collapipe_env.tasks.data_parts`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapipe_env.ground.errors import DataError, reason, shortened
from collapipe_env.tasks.data_parts import choose_named
from collapipe_env.tasks.table_files import NESTED, Table, table_of

PREFIX = "hf:"
"""Beginning of the names of the hub's data sets."""


def fetch(dataset: str) -> Mapping[str, Any]:
    """Return a data set's splits by their names, as the ``datasets`` library has them.

    A data set of the hub, ``"hf:NAME"`` or ``"hf:NAME:CONFIG"``, stays in the library's own cache. A local
    folder is read into memory and leaves nothing behind.

    Raises:
        DataError: If the library is absent or too old, the name unknown or the hub out of reach.
    """
    asked = shortened(dataset)
    try:
        import datasets

        version = datasets.__version__
    except ImportError:
        version = ""
    if not version or int(version.partition(".")[0]) < 4:
        raise DataError(
            f"dataset {asked!r} needs the package datasets from 4.0 on, which runs no code of a data set, "
            f"but {version or 'none'} is installed; pip install -U 'collapipe-env[hub]', or give the path of "
            "local files"
        )
    name, _, config = dataset.removeprefix(PREFIX).partition(":")
    if not name:
        raise DataError(f"dataset {asked!r} names no data set; write hf:NAME or hf:NAME:CONFIG")
    silent = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        if any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            found: Any = datasets.load_from_disk(name)
        elif Path(name).is_dir():
            with tempfile.TemporaryDirectory() as cache:
                found = datasets.load_dataset(name, config or None, cache_dir=cache, keep_in_memory=True)
        else:
            found = datasets.load_dataset(name, config or None)
    except Exception as error:  # of the library, the network stack or a parser; there is no common class
        cause = error.__cause__ or error  # a parser says what is wrong with a file
        raise DataError(
            f"cannot load dataset {asked!r} ({type(cause).__name__}: {reason(cause)}); check the name "
            "(hf:NAME or hf:NAME:CONFIG) and the network, or give the path of local files"
        ) from None
    finally:
        if not silent:
            datasets.enable_progress_bars()
    return found if isinstance(found, Mapping) else {"train": found}


def hub_tables(dataset: str) -> dict[str, Table]:
    """Return the table of each part of a data set, with classes by their names; a sole split is for training.

    Raises:
        DataError: If two splits fit a part, there is no training part, or a split is empty.
    """
    splits = fetch(dataset)
    named = choose_named(
        {name: name for name in splits},
        dataset,
        "save a copy with only one of them and give its folder (hf:FOLDER)",
    )
    if "train" not in named:
        if len(splits) != 1:
            raise DataError(
                f"{dataset}: no training part among the splits {', '.join(splits)}; choose another data set"
            )
        named = {"train": next(iter(splits))}
    return {part: _table(f"{dataset} {name}", splits[name]) for part, name in named.items()}


def _table(source: str, data: Any) -> Table:
    from datasets import ClassLabel, Translation

    if not len(data):
        raise DataError(f"{source}: no rows; choose another data set")
    columns = {
        NESTED if isinstance(feature, Translation) else name: _values(feature, data, name)
        for name, feature in data.features.items()
    }
    classes = tuple(name for name, one in data.features.items() if isinstance(one, ClassLabel))
    objects = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return table_of(source, objects, [f"{source} row {i}" for i in range(len(data))], classes)


def _values(feature: Any, data: Any, name: str) -> list[Any]:
    """Return a column; the feature itself in the place of each picture or the like."""
    from datasets import ClassLabel, Translation, Value

    def named(number: int | None, names: list[str]) -> str:
        return "" if number is None or number < 0 else names[number]

    inner = getattr(feature, "feature", None)
    if isinstance(feature, ClassLabel):
        return [named(number, feature.names) for number in data[name]]
    if isinstance(inner, ClassLabel):
        return [[named(number, inner.names) for number in row or ()] for row in data[name]]
    if isinstance(feature, Value | Translation | dict) or inner is not None:
        return list(data[name])
    return [feature] * len(data)
