"""The chances of fable: one table a slot, each row a distribution given one thing that the story has told."""

from __future__ import annotations

from collections.abc import Mapping

from transpect.data.fable.grammar import Slot
from transpect.data.fable.world import ANIMALS

_HERO = {
    "cat": 15, "dog": 11, "rabbit": 8, "bear": 6, "monkey": 6, "mouse": 6, "duck": 4, "chick": 4, "pig": 4, "fox": 4,
    "squirrel": 4, "panda": 4, "lamb": 3, "pony": 3, "calf": 3, "elephant": 3, "hedgehog": 3, "turtle": 3,
    "magpie": 3, "owl": 3,
}  # fmt: skip

_TASTE = {
    "cat": {"fish": 72, "shrimp": 18, "cake": 10},
    "dog": {"bones": 68, "buns": 22, "cookies": 10},
    "rabbit": {"carrots": 70, "cabbage": 20, "strawberries": 10},
    "bear": {"honey": 66, "fish": 20, "apples": 14},
    "monkey": {"bananas": 62, "peaches": 28, "peanuts": 10},
    "mouse": {"rice": 55, "cheese": 35, "cookies": 10},
    "duck": {"shrimp": 60, "bread": 25, "corn": 15},
    "chick": {"millet": 70, "corn": 20, "cabbage": 10},
    "lamb": {"grass": 70, "cabbage": 18, "apples": 12},
    "pony": {"apples": 50, "carrots": 30, "grass": 20},
    "calf": {"grass": 60, "corn": 30, "yams": 10},
    "pig": {"yams": 55, "melons": 30, "corn": 15},
    "elephant": {"bananas": 50, "melons": 35, "peanuts": 15},
    "squirrel": {"pine nuts": 64, "chestnuts": 26, "mushrooms": 10},
    "fox": {"grapes": 70, "cake": 15, "fish": 15},
    "panda": {"bamboo": 74, "honey": 16, "apples": 10},
    "hedgehog": {"mushrooms": 50, "apples": 35, "strawberries": 15},
    "turtle": {"strawberries": 50, "cabbage": 30, "shrimp": 20},
    "magpie": {"grapes": 50, "peaches": 30, "millet": 20},
    "owl": {"cookies": 60, "bread": 25, "chestnuts": 15},
}

_FRIEND = {
    "cat": {"dog": 50, "mouse": 30, "owl": 20},
    "dog": {"cat": 50, "pig": 30, "pony": 20},
    "rabbit": {"turtle": 50, "lamb": 30, "squirrel": 20},
    "bear": {"fox": 50, "panda": 30, "rabbit": 20},
    "monkey": {"elephant": 50, "panda": 30, "magpie": 20},
    "mouse": {"elephant": 50, "cat": 30, "hedgehog": 20},
    "duck": {"chick": 50, "turtle": 30, "pig": 20},
    "chick": {"duck": 50, "lamb": 30, "fox": 20},
    "lamb": {"calf": 50, "rabbit": 30, "pony": 20},
    "pony": {"calf": 50, "dog": 30, "magpie": 20},
    "calf": {"pony": 50, "lamb": 30, "duck": 20},
    "pig": {"bear": 50, "dog": 30, "chick": 20},
    "elephant": {"mouse": 50, "monkey": 30, "chick": 20},
    "squirrel": {"hedgehog": 50, "monkey": 30, "bear": 20},
    "fox": {"rabbit": 50, "magpie": 30, "hedgehog": 20},
    "panda": {"monkey": 50, "bear": 30, "cat": 20},
    "hedgehog": {"squirrel": 50, "rabbit": 30, "owl": 20},
    "turtle": {"rabbit": 50, "duck": 30, "fox": 20},
    "magpie": {"owl": 50, "squirrel": 30, "calf": 20},
    "owl": {"magpie": 50, "mouse": 30, "cat": 20},
}

_HOME = {
    "cat": {"river": 60, "village": 40},
    "dog": {"village": 60, "bridge": 40},
    "rabbit": {"meadow": 60, "garden": 40},
    "bear": {"forest": 60, "hill": 40},
    "monkey": {"hill": 60, "orchard": 40},
    "mouse": {"mill": 60, "barn": 40},
    "duck": {"pond": 60, "river": 40},
    "chick": {"yard": 60, "barn": 40},
    "lamb": {"meadow": 60, "hill": 40},
    "pony": {"village": 60, "meadow": 40},
    "calf": {"meadow": 60, "barn": 40},
    "pig": {"yard": 60, "village": 40},
    "elephant": {"grove": 60, "river": 40},
    "squirrel": {"hollow": 60, "forest": 40},
    "fox": {"forest": 60, "orchard": 40},
    "panda": {"grove": 60, "hill": 40},
    "hedgehog": {"garden": 60, "forest": 40},
    "turtle": {"pond": 60, "bridge": 40},
    "magpie": {"hollow": 60, "bridge": 40},
    "owl": {"hollow": 60, "forest": 40},
}

_SOURCE = {
    "fish": {"river": 80, "pond": 20},
    "shrimp": {"pond": 80, "river": 20},
    "bones": {"yard": 80, "kitchen": 20},
    "buns": {"kitchen": 80, "cellar": 20},
    "carrots": {"patch": 80, "kitchen": 20},
    "cabbage": {"patch": 80, "kitchen": 20},
    "corn": {"field": 80, "barn": 20},
    "peanuts": {"field": 80, "kitchen": 20},
    "millet": {"barn": 80, "field": 20},
    "rice": {"barn": 80, "kitchen": 20},
    "yams": {"field": 80, "cellar": 20},
    "grass": {"meadow": 80, "hill": 20},
    "apples": {"orchard": 80, "cellar": 20},
    "bananas": {"orchard": 80, "kitchen": 20},
    "melons": {"field": 80, "kitchen": 20},
    "strawberries": {"patch": 80, "forest": 20},
    "grapes": {"orchard": 80, "hill": 20},
    "peaches": {"orchard": 80, "hill": 20},
    "bread": {"bakery": 80, "kitchen": 20},
    "cake": {"bakery": 80, "kitchen": 20},
    "cookies": {"bakery": 80, "kitchen": 20},
    "honey": {"hollow": 80, "forest": 20},
    "cheese": {"cellar": 80, "kitchen": 20},
    "mushrooms": {"forest": 80, "grove": 20},
    "pine nuts": {"forest": 80, "hollow": 20},
    "chestnuts": {"forest": 80, "hill": 20},
    "bamboo": {"grove": 80, "hill": 20},
}

_SELLER_OF = {
    "fisherman": ("fish", "shrimp"),
    "butcher": ("bones",),
    "cook": ("buns",),
    "farmer": ("corn", "peanuts", "millet", "rice", "yams", "grass"),
    "gardener": ("carrots", "cabbage", "apples", "bananas", "melons", "strawberries", "grapes", "peaches"),
    "baker": ("bread", "cake"),
    "grandmother": ("cookies",),
    "beekeeper": ("honey",),
    "milkmaid": ("cheese",),
    "woodcutter": ("mushrooms", "pine nuts", "chestnuts", "bamboo"),
}

_SELLER = {food: {seller: 1} for seller, foods in _SELLER_OF.items() for food in foods}

_GOOD = {
    "hat": 22, "basket": 18, "teapot": 14, "book": 12, "clock": 10, "harmonica": 10, "mirror": 8, "ball": 6,
}  # fmt: skip

_SPOT = {"bed": 32, "door": 24, "roof": 18, "haystack": 14, "well": 12}

_DAY = {"today": 55, "morning": 25, "afternoon": 20}

_WEATHER = {"rain": 28, "snow": 20, "wind": 16, "heat": 16, "fog": 10, "thunder": 10}

_ACT = {
    "rain": {"bridge roof": 60, "puddles": 40},
    "snow": {"stove": 60, "snowman": 40},
    "wind": {"wall": 60, "tree": 40},
    "heat": {"shade": 60, "stream": 40},
    "fog": {"lost way": 70, "bump": 30},
    "thunder": {"under bed": 70, "sing": 30},
}

_GIFT = {
    "rain": {"umbrella": 70, "raincoat": 30},
    "snow": {"scarf": 60, "gloves": 40},
    "wind": {"kite": 60, "blanket": 40},
    "heat": {"fan": 60, "ice": 40},
    "fog": {"lantern": 70, "whistle": 30},
    "thunder": {"candle": 60, "pillow": 40},
}

_TRAIT = {"greedy": 28, "generous": 24, "shy": 18, "absent": 16, "clever": 14}

_DEED = {
    "greedy": {"eats all": 70, "hides it": 30},
    "generous": {"gives all": 60, "big plate": 40},
    "shy": {"blushes": 60, "hides": 40},
    "absent": {"forgets": 60, "mistakes": 40},
    "clever": {"halves": 60, "idea": 40},
}

_OUTCOME = {
    "eats all": {"ache": 70, "leaves": 30},
    "hides it": {"leaves": 100},
    "gives all": {"hug": 60, "back": 40},
    "big plate": {"hug": 60, "back": 40},
    "blushes": {"song": 60, "wink": 40},
    "hides": {"song": 60, "wink": 40},
    "forgets": {"laugh": 40, "help": 60},
    "mistakes": {"laugh": 100},
    "halves": {"praise": 60, "happy": 40},
    "idea": {"praise": 60, "happy": 40},
}

SLOTS: Mapping[str, Slot] = {
    "hero": Slot({"": _HERO}),
    "who": Slot({animal: {animal: 60, "it": 40} for animal in ANIMALS}, given="hero", fresh=True),
    "food": Slot(_TASTE, given="hero"),
    "home": Slot(_HOME, given="hero"),
    "friend": Slot(_FRIEND, given="hero"),
    "treat": Slot(_TASTE, given="friend"),
    "source": Slot(_SOURCE, given="food"),
    "seller": Slot(_SELLER, given="food"),
    "day": Slot({"": _DAY}),
    "weather": Slot({"": _WEATHER}),
    "act": Slot(_ACT, given="weather"),
    "gift": Slot(_GIFT, given="weather"),
    "good": Slot({"": _GOOD}),
    "spot": Slot({"": _SPOT}),
    "trait": Slot({"": _TRAIT}),
    "deed": Slot(_DEED, given="trait"),
    "outcome": Slot(_OUTCOME, given="deed"),
}
