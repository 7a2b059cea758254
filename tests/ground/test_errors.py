"""Quotes in messages: short, and never failing."""

import pytest

from collapipe_env.ground.errors import fits_a_line, reason


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "quoted"),
    [
        (ValueError("plain"), "plain"),
        (ValueError("  first \nsecond"), "first"),
        (ValueError("\x1b[31mred\x07"), "?[31mred?"),
        (ValueError("größer † 数"), "größer † 数"),
        (KeyError(), "KeyError"),
        (UnspeakableError(), "its message cannot be shown: UnspeakableError.__str__ fails"),
    ],
)
def test_the_first_line_of_an_error_is_quoted_as_text(error: Exception, quoted: str) -> None:
    assert reason(error) == quoted


@pytest.mark.parametrize(
    "name", ["", "größer † 数", "a\u00a0b", "می\u200cشود", '=HYPERLINK("x")', "<script>"]
)
def test_names_of_any_script_fit_a_line(name: str) -> None:
    assert fits_a_line(name)


@pytest.mark.parametrize(
    "odd", ["\n", "\r", "\t", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\ud800"]
)
def test_what_acts_on_a_terminal_fits_no_line(odd: str) -> None:
    assert not fits_a_line(f"a{odd}b")


def test_long_messages_are_cut_and_lines_joined() -> None:
    assert len(reason(ValueError("x" * 10_000))) < 320
    assert reason(ValueError("one\n  two\nthree"), lines=2) == "one two"
