"""Every option of every config class of theirs is known here, and means the same where a config.json leaves it out."""

from typing import Any

import pytest
import transformers
from family_cases import CASES

from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical
from transpect.interop.options import COMMON_ALLOWED, COMMON_VOID, Like

CONFIGS = {case.config.model_type: case.config for case in CASES}
LABELS = {"id2label", "label2id", "num_labels"}  # there, a config has two classes until it says otherwise
DERIVED = {"sliding_window"}  # there, it becomes None where no layer uses it


@pytest.mark.parametrize("model_type", CONFIGS)
def test_every_option_is_known_and_has_their_default(model_type: str) -> None:
    family, config = FAMILIES[model_type], CONFIGS[model_type]()
    ours: dict[str, Any] = {name: value for entry in family.entries for name, value in entry.defaults().items()}
    allowed = {**COMMON_ALLOWED.values, **family.allowed.values}
    known = ours.keys() | allowed.keys() | family.synonyms.keys() | family.void | COMMON_VOID
    assert family.flat(config.to_diff_dict()).keys() - known == set()
    theirs = family.flat(config.to_dict())
    # None here is: worked out from other options
    stated = {name for name, value in ours.items() if value is not None and not isinstance(value, Like)}
    both = (stated - LABELS - DERIVED) & theirs.keys()
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
    for name, values in family.allowed.values.items():
        assert theirs.get(name, values[0]) in values


@pytest.mark.parametrize("model_type", CONFIGS)
def test_a_config_that_says_nothing_is_their_default_one(model_type: str) -> None:
    """What several options say together, as base and share of RoPE do, or what follows from others."""
    family, theirs = FAMILIES[model_type], CONFIGS[model_type]().to_dict()
    stated = {name: value for name, value in family.flat(theirs).items() if name not in LABELS}
    for architecture in family.heads:
        nothing = {"architectures": [architecture], **{name: {} for name in theirs.keys() & {"text_config"}}}
        assert canonical(family.read(nothing)) == canonical(family.read({**stated, **nothing}))


@pytest.mark.parametrize("model_type", CONFIGS)
def test_it_names_no_class_that_they_do_not_have(model_type: str) -> None:
    """Of several names for a head, the first one is written."""
    written: dict[type, str] = {}
    for architecture, head in FAMILIES[model_type].heads.items():
        written.setdefault(type(head), architecture)
    assert [name for name in written.values() if not hasattr(transformers, name)] == []
