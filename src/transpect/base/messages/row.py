"""The type of a message; a type checker refuses a row that lacks a language."""

from typing import TypedDict


class Row(TypedDict):
    """One message in every language that the project speaks."""

    en: str
    zh: str
