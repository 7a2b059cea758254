"""Parts of the documentation that tools write: what stands between a part's markers."""

from __future__ import annotations

from collapipe_env.errors import DataError

BEGIN, END = "<!-- generated: {} -->", "<!-- end of generated: {} -->"


def replaced(text: str, name: str, content: str, page: object = "the page") -> str:
    """Return a page with new content between the markers of a part; the words around them stay.

    Args:
        text: The page.
        name: Name of the part.
        content: What is to stand there.
        page: Where the page is, for the error.

    Raises:
        DataError: If the part's markers are not there exactly once.
    """
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise DataError(f"{page} must have '{begin}' and '{end}' once each: put them back")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"
