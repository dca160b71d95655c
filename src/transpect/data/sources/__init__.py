"""Sources: where text comes from. Torch is not needed here.

A relative path starts where the program runs; ``~`` and ``$NAME`` are not expanded. A file that can't be read as stated
is a `DataError` with file, line and remedy; nothing is skipped but blank lines, unless ``on_bad_line`` is ``skip``.
"""

from transpect.data.documents import Document, Documents, Listed, Segmenter
from transpect.data.sources.base import Source
from transpect.data.sources.chat import Chat
from transpect.data.sources.csv_table import Csv
from transpect.data.sources.deduplicated import Deduplicated
from transpect.data.sources.hub_datasets import HubDataset
from transpect.data.sources.joined import Joined
from transpect.data.sources.jsonl import Jsonl
from transpect.data.sources.mixture import Mixture, Part
from transpect.data.sources.parquet import Parquet
from transpect.data.sources.path import source_from_path
from transpect.data.sources.preference import Preference
from transpect.data.sources.stories import Stories
from transpect.data.sources.tagged import Tagged
from transpect.data.sources.text import Text
from transpect.data.sources.tokens import Tokens
from transpect.data.sources.tolerant import with_bad_lines
from transpect.data.sources.triples import Triples
from transpect.data.sources.tsv import Tsv

__all__ = [
    "Chat",
    "Csv",
    "Deduplicated",
    "Document",
    "Documents",
    "HubDataset",
    "Joined",
    "Jsonl",
    "Listed",
    "Mixture",
    "Parquet",
    "Part",
    "Preference",
    "Segmenter",
    "Source",
    "Stories",
    "Tagged",
    "Text",
    "Tokens",
    "Triples",
    "Tsv",
    "source_from_path",
    "with_bad_lines",
]
