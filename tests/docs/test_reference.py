"""The reference names what is there, with its types; extras, versions and formats are those of the code."""

import ast
import functools
import importlib
import inspect
import re
import textwrap
import tomllib
import typing

import pages_support as support
import pytest
from pages_support import text_of

import collapipe_env
from collapipe_env.agents.learned import agent_file
from collapipe_env.envs import snapshot
from collapipe_env.evaluation import runner
from collapipe_env.execution import committed_rounds
from collapipe_env.zoo import shipped_agents

PROJECT = tomllib.loads((support.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PUBLIC = sorted(set(collapipe_env.__all__) - {"__version__"})


def referenced():
    for path in sorted(support.DOCS.glob("reference*.md")):
        text = path.read_text(encoding="utf-8")
        for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text, re.MULTILINE):
            members = re.search(r"members: \[(.*)\]", options)
            yield name, members[1].split(", ") if members else []


def found(name):
    """What a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], thing)
    raise AssertionError(name)


def test_the_reference_names_what_is_there_and_every_public_name():
    names = list(referenced())
    assert len(names) > 30
    for name, members in names:
        thing = found(name)
        assert thing.__doc__, name
        assert all(getattr(thing, member).__doc__ for member in members), name
    told = {name.rpartition(".")[2] for name, _ in names} | {one for _, members in names for one in members}
    assert set(PUBLIC) <= told
    assert set(PUBLIC) <= set(re.findall(r"`(\w+)`", text_of("reference")))


def test_installation_names_every_extra():
    for extra in PROJECT["optional-dependencies"]:
        assert re.search(rf"^\|[^|]*`{extra}`", text_of("install"), re.MULTILINE), extra
    assert next(d for d in PROJECT["dependencies"] if d.startswith("torch")) in text_of("install")


def test_formats_and_pythons_are_those_of_the_code():
    told = {name: int(now) for name, now in re.findall(r"^\| (.+) \| (\d+) \|$", text_of("reference"), re.M)}
    assert told == {
        "state of an environment": snapshot.STATE_VERSION,
        "saved agent": agent_file.FORMAT_VERSION,
        "index of the zoo": shipped_agents.FORMAT_VERSION,
        "episode of a comparison": runner.FORMAT,
        "committed rounds of an execution": committed_rounds.VERSION,
    }
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert f"| Python | {', '.join(named)} |" in text_of("reference")


def functions(thing):
    """Functions a user may call: the thing itself, or a class's own public methods and constructor."""
    if not inspect.isclass(thing):
        return [thing]
    owned = [c for c in thing.__mro__ if c.__module__.startswith("collapipe_env.")]
    members = {name: member for c in reversed(owned) for name, member in vars(c).items()}
    found = []
    for name, member in members.items():
        if name.startswith("_") and name not in {"__init__", "__call__"}:
            continue
        member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        # Protocols have a constructor of the standard library.
        found += [member] if inspect.isfunction(member) and member.__module__ != "typing" else []
    return found


def untyped(function):
    """Parameters, and `return`, that have no annotation."""
    signature = inspect.signature(function)
    found = [
        name
        for place, (name, parameter) in enumerate(signature.parameters.items())
        if parameter.annotation is parameter.empty and not (place == 0 and name in {"self", "cls"})
    ]
    return found + (["return"] if signature.return_annotation is signature.empty else [])


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_typed(name):
    thing = getattr(collapipe_env, name)
    called = functions(thing)
    assert called or typing.get_type_hints(thing)
    assert {f.__qualname__: untyped(f) for f in called if untyped(f)} == {}
    assert not inspect.isclass(thing) or undeclared(thing) == set()


def undeclared(kind):
    """Public attributes that a constructor sets to the value of an expression without saying their type.

    Type checkers may infer different types for these; an attribute that is a parameter has the parameter's.
    """
    owned = [c for c in kind.__mro__ if c.__module__.startswith("collapipe_env.")]
    declared = {name for c in kind.__mro__ for name in vars(c).get("__annotations__", {})}
    found = set()
    for c in owned:
        if "__init__" not in vars(c) or c.__init__.__module__ == "typing":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(c.__init__)))
        except OSError:  # written by dataclasses
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                declared.add(node.target.attr)
            elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Name):
                for target in node.targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    found |= {p.attr for p in parts if isinstance(p, ast.Attribute) and is_self(p.value)}
    return {name for name in found - declared if not name.startswith("_")}


def is_self(node):
    return isinstance(node, ast.Name) and node.id == "self"
