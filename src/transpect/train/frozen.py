"""The weights that a run leaves as they are, in its states: written once, and then linked from each state to the next.

They are the model that an adapter is trained beside, or what ``train.freeze`` names. A state is whole by itself, as
every other: its directory holds the file, under one more name of the same bytes on the disk. So a state costs what is
trained, not what the model weighs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from safetensors.torch import save_file
from torch import Tensor, nn

from transpect.core.model import Transformer
from transpect.train.parallel.world import World

if TYPE_CHECKING:
    from transpect.train.state import TrainingState

FROZEN: Final = "frozen.safetensors"


@final
class Frozen:
    """What of a model is not trained.

    Args:
        model: with the weights that it begins with.
        state: the one that the run goes on from, if the next one takes its place; None writes the weights anew.

    Attributes:
        names: of the weights.
        linked: the digest of the file that the state on the disk holds, by its name; empty where it holds none.
    """

    def __init__(self, model: Transformer, state: TrainingState | None = None) -> None:
        held = model.state_dict(keep_vars=True).items()
        self.names = {name for name, value in held if isinstance(value, nn.Parameter) and not value.requires_grad}
        self.linked: dict[str, str] = {}
        if state is not None:
            self.note(state.data["files"])
        self._due = bool(self.names) and not self.linked
        self._weights: dict[str, Tensor] = {}

    def gather(self, model: Transformer, world: World) -> None:
        """Have at hand what is still to be written; every process must call it."""
        if self._due:
            whole = world.whole(model)
            self._weights = {f"model/{name}": whole[name].contiguous() for name in self.names & whole.keys()}
            self._due = False

    def write(self, staging: Path) -> None:
        """Write what `gather` found, if anything; called by the leading process."""
        if self._weights:
            save_file(self._weights, staging / FROZEN)
            self._weights = {}

    def note(self, digests: dict[str, str]) -> None:
        """These are the digests of the files of a state, by name."""
        self.linked = {name: digest for name, digest in digests.items() if name == FROZEN}

    def stays(self, name: str) -> bool:
        """Whether an entry of the state before belongs to the next one too."""
        return name in self.linked
