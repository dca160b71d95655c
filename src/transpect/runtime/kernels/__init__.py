"""The kernels of a decode program, in float32: one file a kind of work.

Axes: R rows (one token of one sequence each), D width in, N width out, H heads, K key-value heads, E head, B sequences,
S capacity.

A decode step reads each weight once, so it is as fast as memory is. The loops are plain: LLVM turns sums into vectors.
Buffers of rows have room for a multiple of eight, as eight rows are computed at a time with each weight in a register,
and are a little wider than what they hold: rows that are a multiple of 4096 bytes apart would share one set of the
cache.
"""

from transpect.runtime.kernels.attention import attend, attend_source, place
from transpect.runtime.kernels.linear import finish, gated, linear, project
from transpect.runtime.kernels.many import linear_many
from transpect.runtime.kernels.many_attention import BEHIND, attend_many
from transpect.runtime.kernels.norms import layer_norm, rms_norm
from transpect.runtime.kernels.rows import activated, add, add_position, clamp, gate, look_up, to_integers

PAD = 32
"""How much wider buffers of rows are: what is computed by vectors of columns may end behind the last one."""

__all__ = [
    "BEHIND",
    "PAD",
    "activated",
    "add",
    "add_position",
    "attend",
    "attend_many",
    "attend_source",
    "clamp",
    "finish",
    "gate",
    "gated",
    "layer_norm",
    "linear",
    "linear_many",
    "look_up",
    "place",
    "project",
    "rms_norm",
    "to_integers",
]
