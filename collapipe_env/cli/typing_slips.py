"""Slips on a command line: a scenario without its option, an option of another command, no number."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from collapipe_env.evaluation.own_code import is_reference
from collapipe_env.ground.errors import ScenarioError, shortened
from collapipe_env.scenario.names import scenario_names
from collapipe_env.scenario.plain_data import YAML_SUFFIXES

ELSEWHERE = {"reward": "rewards belong to training, as in collapipe train --reward NAME"}
"""Options that users look for in commands that do not have them."""
POSITIONAL = tyro.conf.Positional[str].__metadata__[0]  # type: ignore[attr-defined]
"""Marker of the fields that are given without an option."""
NUMBERS = ConstructorRegistry()
"""Reads numbers; the errors for other words name the word instead of Python's function."""


def refuse_slips(kind: object, arguments: Sequence[str]) -> None:
    """Refuse what tyro would report without a remedy; all other errors are left to it.

    Raises:
        ScenarioError: Names the word and what was probably meant.
    """
    if {"-h", "--help"} & set(arguments):
        return
    _refuse_repeated(kind, arguments)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return
    options = dict(_options(kind))
    for argument in arguments:
        option = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and option in ELSEWHERE and option not in options:
            raise ScenarioError(f"there is no option --{option} here: {ELSEWHERE[option]}")
    option = next((name for name in ("scenario", "scenarios") if name in options), "")
    takes_words = any(POSITIONAL in getattr(hint, "__metadata__", ()) for hint in options.values())
    if not option or takes_words or not arguments or arguments[0].startswith("-"):
        return
    meant = _scenario_of(arguments[0])
    if meant is not None:
        raise ScenarioError(
            f"{shortened(arguments[0])!r} follows no option: did you mean --{option} {shortened(meant)}?"
        )


def _refuse_repeated(kind: object, arguments: Sequence[str]) -> None:
    """Refuse a second use of an option of several values; for tyro, it replaces the first.

    Args:
        kind: Class of the options, or a union of those of subcommands.
    """
    given = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    classes = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and is_dataclass(one)]
    for name, hint in (pair for one in classes for pair in _options(one)):
        option = f"--{name}"
        kinds = hint, *get_args(hint), *get_args(getattr(hint, "__origin__", None))
        if given.count(option) > 1 and any(get_origin(one) is tuple for one in kinds):
            raise ScenarioError(f"{option} is given {given.count(option)} times: name all after one {option}")


def _options(kind: type) -> Iterator[tuple[str, Any]]:
    """Names and annotated types of a command's options, those of nested classes included."""
    for field, hint in get_type_hints(kind, include_extras=True).items():
        named = [getattr(mark, "name", None) for mark in getattr(hint, "__metadata__", ())]
        yield next(filter(None, named), field).replace("_", "-"), hint
        inner = getattr(hint, "__origin__", hint)
        if isinstance(inner, type) and is_dataclass(inner):
            yield from _options(inner)


def _scenario_of(word: str) -> str | None:
    """The scenario that a word probably names, if any."""
    if word.endswith(YAML_SUFFIXES) or is_reference(word):
        return word
    return next(iter(difflib.get_close_matches(word[:100], scenario_names(), n=1)), None)


_WANTED = {int: "a whole number, such as 5", float: "a number, such as 0.5"}


@NUMBERS.primitive_rule
def _number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    """Options of whole and of real numbers."""
    kind: type[float] | None = next((kind for kind in _WANTED if info.type is kind), None)
    if kind is None:
        return None

    def read(words: list[str]) -> float:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"give {_WANTED[kind]}, not {shortened(words[0])!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, kind)),
        str_from_instance=lambda value: [str(value)],
    )
