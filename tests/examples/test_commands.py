"""Commands that the examples' docstrings and their page name are ones that the examples take."""

import importlib
import re
import shlex

import example_support
import pytest
import tyro

NAMES = sorted(path.stem for path in example_support.EXAMPLES.glob("*.py"))
PAGES = [example_support.ROOT / "docs" / name for name in ("rl_libraries.md", "how_to_process.md")]


def commands(text: str) -> list[list[str]]:
    """Names and arguments of the examples that a text runs."""
    found = re.findall(r"^(?:    )?python examples/(\S+)\.py([^#\n]*)", text, re.MULTILINE)
    return [[name, *shlex.split(rest)] for name, rest in found]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_taken(name: str, capsys) -> None:
    example = importlib.import_module(name)
    own = commands(example.__doc__ or "")
    assert len(own) >= 3
    paged = [line for page in PAGES for line in commands(page.read_text(encoding="utf-8")) if line[0] == name]
    assert paged, "no page says how to run it"
    assert any(f"(../examples/{name}.py)" in page.read_text(encoding="utf-8") for page in PAGES)
    for script, *arguments in own + paged:
        assert script == name
        if arguments == ["--help"]:
            with pytest.raises(SystemExit) as left:
                tyro.cli(example.Args, args=arguments)
            assert left.value.code == 0
            assert "--out FOLDER" in capsys.readouterr().out
        else:
            options = tyro.cli(example.Args, args=arguments)
            assert (options == example.Args()) == (not arguments)
