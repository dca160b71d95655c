"""Outputs that are held to a language: a regular expression, a JSON schema, a grammar, a list of choices."""

from transpect.decode.constraints.languages import LANGUAGES, Grammar, JsonSchema, Language, OneOf, Regex, held_to
from transpect.decode.constraints.matching import Matching, matching

__all__ = ["LANGUAGES", "Grammar", "JsonSchema", "Language", "Matching", "OneOf", "Regex", "held_to", "matching"]
