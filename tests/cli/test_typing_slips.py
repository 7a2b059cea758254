"""Slips on the command line that would otherwise be refused without a remedy."""

from __future__ import annotations

import pytest

from collapipe_env.cli.main import main


def refusal(capsys, *arguments: str) -> str:
    assert main([*arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("command", ["evaluate", "train", "execute", "calibrate", "compare", "warm-up"])
@pytest.mark.parametrize(
    ("word", "meant"),
    [("small", "small"), ("smal", "small"), ("wet.yaml", "wet.yaml"), ("rain.py:wet", "rain.py:wet")],
)
def test_a_scenario_without_its_option_is_told_the_option(command, word, meant, capsys) -> None:
    line = refusal(capsys, command, word, "--fresh")
    option = "--scenarios" if command in ("compare", "warm-up") else "--scenario"
    assert line == f"error: {word!r} follows no option: did you mean {option} {meant}?"


@pytest.mark.parametrize(
    "arguments", [["evaluate", "dssra"], ["train", "ppo"], ["compare", "--sheds", "small"]]
)
def test_other_words_are_left_to_the_parser(arguments, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "Unrecognized options: " in capsys.readouterr().err


def test_words_that_need_no_option_are_read(capsys) -> None:
    assert "there is no folder small" in refusal(capsys, "view", "small")
    assert "has nothing to tune" in refusal(capsys, "tune", "small")


def test_help_is_shown_whatever_else_is_typed(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "small", "--reward", "delay", "--help"])
    assert end.value.code == 0
    assert "--scenario" in capsys.readouterr().out


@pytest.mark.parametrize("given", [["--reward", "delay"], ["--reward=delay"]])
@pytest.mark.parametrize("command", [["evaluate"], ["compare"], ["calibrate"], ["tune", "boards"]])
def test_a_reward_outside_training_is_told_its_command(command, given, capsys) -> None:
    line = refusal(capsys, *command, *given)
    assert "no option --reward here" in line
    assert "collapipe train --reward NAME" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["evaluate", "--episodes", "three"],
            "Error parsing --episodes: give a whole number, such as 5, not 'three'",
        ),
        (["view", "run", "--fps", "slow"], "Error parsing --fps: give a number, such as 0.5, not 'slow'"),
    ],
)
def test_words_that_are_no_numbers_are_named(arguments, message, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "literal" not in error


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        ("execute", "--fault", ("c0d1@1", "c0d2@1")),
        ("execute", "--place", ("c0=a", "c1=b")),
        ("evaluate", "--schedulers", ("dssra", "pipeline")),
        ("compare", "--scenarios", ("small", "wild")),
        ("leaderboard run", "--tier", ("wild", "static")),
    ],
)
def test_a_second_use_does_not_silently_replace_the_first(command, option, values, capsys) -> None:
    for second in ([option, values[1]], [f"{option}={values[1]}"]):
        line = refusal(capsys, *command.split(), option, values[0], *second)
        assert line == f"error: {option} is given 2 times: name all after one {option}"


@pytest.mark.parametrize("number", ["-1", "+0", "0_0"])
def test_whole_numbers_are_read_as_python_reads_them(number, capsys) -> None:
    assert refusal(capsys, "evaluate", "--episodes", number) == (
        f"error: --episodes = {int(number)}: use a number from 1 to 100,000"
    )
