"""Sentences of everyday lengths, as people look things up and translate them."""

from __future__ import annotations

from typing import Final

__all__ = ["SENTENCES"]

SENTENCES: Final = (
    "How do I reset my password?",
    "The parcel was left with a neighbour.",
    "Delete the selected files",
    "Water boils at a lower temperature in the mountains because the air presses less on its surface.",
    "Could you send me the minutes of last week's meeting before noon?",
    "The museum is closed on Mondays.",
    "She had read the letter so often that she knew where each word stood on the page.",
    "Show hidden folders",
    "A new bridge over the river will be opened to traffic in the spring, two years later than planned.",
    "Bees find their way home by the position of the sun.",
    "Your subscription ends in three days.",
    "If the light stays red for longer than a minute, switch the device off, wait, and switch it on again.",
    "Where can I buy a ticket?",
    "The committee rejected the proposal by nine votes to four.",
    "Grandfather kept his tools in a blue chest under the stairs, and nobody else was allowed to open it.",
    "Print in colour",
    "Bread rises because yeast turns sugar into gas.",
    "The connection to the server was lost while the file was being saved; your changes are kept on this computer.",
    "It rained all night.",
    "Two of the three witnesses described the same car, but none of them remembered its number.",
    "What is the difference between a virus and a bacterium?",
    "Prices of wheat have fallen for the fifth month in a row, mostly because of good harvests in the south.",
    "Turn left after the church.",
    "The cat sleeps on the warm side of the roof.",
    "No results were found for this search.",
    "He learned to play the violin at an age when others give it up.",
    "Most of the glaciers in this range have lost a third of their ice since they were first measured a century ago.",
    "Add to favourites",
    "The patient was given the medicine twice a day, with food, and recovered within a week.",
    "Are dogs allowed in the garden?",
    "An engine that is never serviced will fail at the least convenient moment.",
    "The last train leaves at midnight.",
)
"""32 of them."""
