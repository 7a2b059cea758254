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
from collapipe_env.tasks.table_files import Table

PREFIX = "hf:"
"""Beginning of the names of the hub's data sets."""


def fetch(dataset: str) -> Mapping[str, Any]:
    """Return a data set's splits by their names, as the ``datasets`` library has them.

    A data set of the hub stays in the library's own cache. A local folder is read into memory and leaves
    nothing behind.

    Args:
        dataset: ``"hf:NAME"`` or ``"hf:NAME:CONFIG"``.

    Raises:
        DataError: If the library is absent, the name unknown or the hub out of reach.
    """
    asked = shortened(dataset)
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"dataset {asked!r} needs the package datasets; pip install 'collapipe-env[hub]', or give the "
            "path of local files"
        ) from None
    if int(datasets.__version__.partition(".")[0]) < 4:
        raise DataError(
            f"dataset {asked!r} needs datasets 4.0 or newer, which runs no code of a data set, but "
            f"{datasets.__version__} is installed; pip install -U 'collapipe-env[hub]', or give the path "
            "of local files"
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


def hub_tables(dataset: str, *, pairs: bool = False) -> dict[str, Table]:
    """Return the table of each part of a data set, with classes by their names; a sole split is for training.

    Args:
        dataset: As for :func:`fetch`.
        pairs: Whether only columns of strings count; the fields of a column of translations are such columns.

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
    return {part: _table(f"{dataset} {name}", splits[name], pairs) for part, name in named.items()}


def _table(source: str, data: Any, pairs: bool) -> Table:
    from datasets import ClassLabel, Translation

    if not len(data):
        raise DataError(f"{source}: no rows; choose another data set")
    features = data.features
    nested = next((name for name, one in features.items() if isinstance(one, Translation | dict)), None)
    if pairs and nested is not None:
        sides = getattr(features[nested], "languages", None) or list(features[nested])
        rows = list(data[nested])
        columns = {side: [row[side] for row in rows] for side in sides}
    else:
        texts = ("string", "large_string")
        kept = [name for name, one in features.items() if not pairs or getattr(one, "dtype", "") in texts]
        columns = {name: _values(features[name], data, name) for name in kept}
    classes = tuple(name for name, one in features.items() if isinstance(one, ClassLabel))
    places = [f"{source} row {i}" for i in range(len(data))]
    return Table(source, list(zip(*columns.values(), strict=True)), places, list(columns), classes)


def _values(feature: Any, data: Any, name: str) -> list[Any]:
    """Return a column; the feature itself in the place of each picture or the like."""
    from datasets import ClassLabel, Value

    def named(number: int | None, names: list[str]) -> str:
        return "" if number is None or number < 0 else names[number]

    inner = getattr(feature, "feature", None)
    if isinstance(feature, ClassLabel):
        return [named(number, feature.names) for number in data[name]]
    if isinstance(inner, ClassLabel):
        return [[named(number, inner.names) for number in row or ()] for row in data[name]]
    if isinstance(feature, Value) or inner is not None:
        return list(data[name])
    return [feature] * len(data)
