"""Slips on the command line: each is an error that names the word, and what was meant where that is clear."""

from __future__ import annotations

import pytest

from collapipe_env.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate small", "Unrecognized options: small"),
        ("compare --shedulers dssra", "Perhaps you meant: --schedulers NAME ..."),
        ("train --reword delay", "Perhaps you meant: --reward NAME"),
        (
            "train --algo pop",
            "invalid choice 'pop' for argument '--algo'. Expected one of ('ppo', 'sac', 'graph')",
        ),
        ("evaluate --episodes", "Missing value for argument '--episodes'"),
        ("evaluate --seed three", "Unrecognized options: --seed"),
        ("execute --rounds three", "Error parsing --rounds: invalid literal for int() with base 10: 'three'"),
        ("view run --fps slow", "Error parsing --fps: could not convert string to float: 'slow'"),
        ("leaderboard", "Missing subcommand"),
    ],
)
def test_slips_are_named(arguments, message, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("execute", "--fault", ("c0d1@1", "c0d2@1")),
        ("execute", "--place", ("c0=a", "c1=b")),
        ("evaluate", "--schedulers", ("dssra", "pipeline")),
        ("compare", "--scenarios", ("small", "wild")),
        ("train", "--graph.scenarios", ("small", "medium")),
        ("leaderboard run", "--tier", ("wild", "static")),
    ],
)
def test_a_second_use_does_not_silently_replace_the_first(command, option, values, capsys) -> None:
    for second in ([option, values[1]], [f"{option}={values[1]}"]):
        assert main([*command.split(), option, values[0], *second]) == 2
        expected = f"error: {option} is given 2 times: name all after one {option}\n"
        assert capsys.readouterr().err == expected


@pytest.mark.parametrize("number", ["-1", "+0", "0_0"])
def test_whole_numbers_are_read_as_python_reads_them(number, capsys) -> None:
    assert main(["evaluate", "--episodes", number]) == 2
    expected = f"error: --episodes = {int(number)}: use a number from 1 to 100,000\n"
    assert capsys.readouterr().err == expected
