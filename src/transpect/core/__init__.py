"""The architecture: what every Transformer here is made of. It knows no text, file, cache implementation or server."""

from transpect.core.attention import AttentionConfig, QkNorm
from transpect.core.block_visibility import Blocks, EdgeBlocks, RandomBlocks, UpTo
from transpect.core.config import ModelConfig, override
from transpect.core.context import (
    NO_CACHE,
    NO_MEMORY,
    NO_SOURCE,
    NO_TAP,
    Cache,
    Context,
    Memory,
    PassCache,
    Source,
    Tap,
)
from transpect.core.embeddings import EmbeddingConfig, Factor
from transpect.core.feedforward import FeedForward, Glu, Mlp
from transpect.core.heads import CausalLM, Head, MaskedLM, Pooled, SequenceClass, TokenClass, Transform
from transpect.core.initialization import Initialization, KaimingInit, NormalInit, WidthInit, XavierInit
from transpect.core.kernels import BlockSparse, Flash, Flex, Kernel, Linear, Linformer, Naive, Performer, Sdpa
from transpect.core.model import Transformer
from transpect.core.moe import Moe, RouterTap, balance_loss
from transpect.core.norms import (
    BranchEnd,
    Enter,
    LayerNorm,
    Norm,
    Placement,
    PlainLayerNorm,
    Post,
    Pre,
    RMSNorm,
    Sandwich,
)
from transpect.core.presets import PRESETS, preset
from transpect.core.stack_config import OtherLayers, StackConfig
from transpect.core.summaries import Summaries
from transpect.core.tags import Tags
from transpect.core.visibility import (
    All,
    AnyOf,
    Causal,
    FromGlobal,
    Full,
    GlobalTokens,
    PrefixLM,
    SameSegment,
    Visibility,
    Window,
)

__all__ = [
    "NO_CACHE",
    "NO_MEMORY",
    "NO_SOURCE",
    "NO_TAP",
    "PRESETS",
    "All",
    "AnyOf",
    "AttentionConfig",
    "BlockSparse",
    "Blocks",
    "BranchEnd",
    "Cache",
    "Causal",
    "CausalLM",
    "Context",
    "EdgeBlocks",
    "EmbeddingConfig",
    "Enter",
    "Factor",
    "FeedForward",
    "Flash",
    "Flex",
    "FromGlobal",
    "Full",
    "GlobalTokens",
    "Glu",
    "Head",
    "Initialization",
    "KaimingInit",
    "Kernel",
    "LayerNorm",
    "Linear",
    "Linformer",
    "MaskedLM",
    "Memory",
    "Mlp",
    "ModelConfig",
    "Moe",
    "Naive",
    "Norm",
    "NormalInit",
    "OtherLayers",
    "PassCache",
    "Performer",
    "Placement",
    "PlainLayerNorm",
    "Pooled",
    "Post",
    "Pre",
    "PrefixLM",
    "QkNorm",
    "RMSNorm",
    "RandomBlocks",
    "RouterTap",
    "SameSegment",
    "Sandwich",
    "Sdpa",
    "SequenceClass",
    "Source",
    "StackConfig",
    "Summaries",
    "Tags",
    "Tap",
    "TokenClass",
    "Transform",
    "Transformer",
    "UpTo",
    "Visibility",
    "WidthInit",
    "Window",
    "XavierInit",
    "balance_loss",
    "override",
    "preset",
]
