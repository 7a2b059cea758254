"""Quotes in messages: short, and never failing."""

import pytest

from collapipe_env.errors import reason


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


def test_long_messages_are_cut_and_lines_joined() -> None:
    assert len(reason(ValueError("x" * 10_000))) < 320
    assert reason(ValueError("one\n  two\nthree"), lines=2) == "one two"
