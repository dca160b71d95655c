"""Every option of every config class of theirs is known here, and means the same where a config.json leaves it out."""

from typing import Any

import pytest
from family_cases import CASES

from transpect.interop.families import FAMILIES
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
    assert config.to_diff_dict().keys() - known == set()
    theirs = config.to_dict()
    # None here is: worked out from other options
    stated = {name for name, value in ours.items() if value is not None and not isinstance(value, Like)}
    both = (stated - LABELS - DERIVED) & theirs.keys()
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
    for name, values in family.allowed.values.items():
        assert theirs.get(name, values[0]) in values
