"""The one error of the package, for the person who gave the input."""

from __future__ import annotations


class BundleError(Exception):
    """What is wrong with an input, in one line, and what to do about it."""


def check(condition: object, message: str) -> None:
    """Raises BundleError(message) unless the condition holds."""
    if not condition:
        raise BundleError(message)
