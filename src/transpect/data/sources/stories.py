"""Stories of the built-in world as documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from transpect.base.errors import ConfigError
from transpect.data.documents import Document, Documents, Segmenter
from transpect.data.fable import Fable, Language
from transpect.data.sources.base import Source


@final
@dataclass(frozen=True)
class Stories(Source, kind="fable"):
    """Stories ``start``, ``start + 1``, … of a stream of the built-in world, each made when it is asked for.

    Attributes:
        lang: ``zh`` or ``en``.
        stories: how many; None is without end.
        seed: of the stream. Streams are independent samples of one distribution, so another seed is a fair valid set.
        start: the first story.
    """

    lang: Language = "zh"
    stories: int | None = None
    seed: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        if self.stories is not None and self.stories < 1:
            raise ConfigError(
                "stories must be at least 1", value=self.stories, remedy="Leave it out for an endless row."
            )
        if self.start < 0:
            raise ConfigError("start must be 0 or more", value=self.start)

    def documents(self) -> StoryDocuments:
        return StoryDocuments(self, Fable(self.lang))


@final
@dataclass(frozen=True)
class StoryDocuments(Documents):
    """The stories of a source by number."""

    source: Stories
    world: Fable

    @property
    def size(self) -> int | None:
        return self.source.stories

    @property
    def segmenter(self) -> Segmenter:
        return self.world.words

    def __getitem__(self, index: int) -> Document:
        if index < 0 or (self.size is not None and index >= self.size):
            raise IndexError(index)
        return Document(self.world.story(self.source.seed, self.source.start + index).text(self.source.lang))
