"""Filters: pure functions from logits to logits, each with its own value for each row of a batch.

They are applied in the order of `CHAIN`, which is that of ``transformers`` for all that it has:

1. `restrict` (constraint, bans, the minimum of tokens). ``transformers`` has bans in several places, which is the same,
   since nothing but a forced token undoes a −inf; here they come first, so that what comes later knows what is left.
2. biases: ``logit_bias``, ``sequence_bias``
3. penalties of what has been said: ``encoder_repetition_penalty``, ``repetition_penalty``, ``frequency_penalty``,
   ``presence_penalty``
4. ``no_repeat_ngram_size``, ``encoder_no_repeat_ngram_size``, ``bad_words``
5. the end: ``forced_eos_token_id``, ``exponential_decay_length_penalty``
6. ``begin_suppress_tokens``, then DRY (``dry_multiplier``)
7. the choice: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``typical_p``, ``epsilon_cutoff``, ``eta_cutoff``

1 to 6 are `PROCESSORS`, for every strategy; 7 are `WARPERS`, for those that draw. A filter is applied to the rows that
ask for it and leaves the others bit for bit as they are, and what it does to a row depends on that row alone.

None leaves a row without a token. Where those of 4 or ``begin_suppress_tokens`` would take the last one, they leave the
row as it is; where `restrict` would, what it allows comes back as equals; penalties are finite.
"""

from transpect.decode.filters.bans import (
    Rules,
    bad_words,
    ban,
    begin_suppress_tokens,
    encoder_no_repeat_ngram,
    forced_eos,
    no_repeat_ngram,
    restrict,
)
from transpect.decode.filters.dry import Dry, dry
from transpect.decode.filters.endings import Endings, logit_bias, sequence_bias
from transpect.decode.filters.options import FilterParams
from transpect.decode.filters.penalties import (
    encoder_repetition_penalty,
    exponential_decay_length_penalty,
    frequency_penalty,
    presence_penalty,
    repetition_penalty,
)
from transpect.decode.filters.table import CHAIN, PROCESSORS, WARPERS, Filter
from transpect.decode.filters.truncation import (
    epsilon_cutoff,
    eta_cutoff,
    min_p,
    temperature,
    top_k,
    top_p,
    typical_p,
)

__all__ = [
    "CHAIN",
    "PROCESSORS",
    "WARPERS",
    "Dry",
    "Endings",
    "Filter",
    "FilterParams",
    "Rules",
    "bad_words",
    "ban",
    "begin_suppress_tokens",
    "dry",
    "encoder_no_repeat_ngram",
    "encoder_repetition_penalty",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "forced_eos",
    "frequency_penalty",
    "logit_bias",
    "min_p",
    "no_repeat_ngram",
    "presence_penalty",
    "repetition_penalty",
    "restrict",
    "sequence_bias",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
]
