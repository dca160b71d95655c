"""Experiment trackers of others as loggers: Weights & Biases and SwanLab. Offline, unless a recipe asks otherwise."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.train.watching.logger import Logger, Quiet, Record, Run, tag_of


class Tracker(Variant):
    """A tracker with its options."""

    package: ClassVar[str]

    def build(self) -> Logger:
        """The logger.

        Raises:
            ConfigError: its package is not installed.
        """
        raise AssertionError("abstract")

    def module(self) -> Any:
        """The package."""
        try:
            return import_module(self.package)
        except ImportError as error:
            raise ConfigError(
                f"the tracker {self.package} needs the package of that name",
                value=str(error),
                remedy=f"pip install 'transpect[{self.package}]', or leave it out of logging.trackers.",
            ) from error


@dataclass(frozen=True)
class Wandb(Tracker, kind="wandb"):
    """Weights & Biases: files in ``RUN/wandb``, for ``wandb sync``, or straight to the server.

    Attributes:
        project: None is the server's default.
        name: of the run; None is that of its directory.
        entity: whose project.
        group: runs that belong together.
        tags: to find it by.
        mode: ``offline`` uses no network; ``online`` does.
    """

    package: ClassVar[str] = "wandb"
    project: str | None = None
    name: str | None = None
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    mode: Literal["offline", "online"] = "offline"

    def build(self) -> Logger:
        return WandbLogger(self, self.module())


@dataclass(frozen=True)
class SwanLab(Tracker, kind="swanlab"):
    """SwanLab: files in ``RUN/swanlab``, for ``swanlab sync`` (offline) or ``swanlab watch`` (local), or its cloud.

    Attributes:
        project: None is the directory that the process works in.
        name: of the experiment; None is that of the run directory.
        workspace: whose project.
        tags: to find it by.
        mode: ``offline`` and ``local`` use no network; ``online`` does.
    """

    package: ClassVar[str] = "swanlab"
    project: str | None = None
    name: str | None = None
    workspace: str | None = None
    tags: tuple[str, ...] = ()
    mode: Literal["offline", "local", "online"] = "offline"

    def build(self) -> Logger:
        return SwanLabLogger(self, self.module())


class TrackerLogger(Quiet):
    """What both have in common: measures in folders, under the step of the run."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._session: Any = None

    def record(self, record: Record) -> None:
        step = int(record["step"])
        self._session.log({tag_of(name): value for name, value in record.items() if name != "step"}, step=step)

    def close(self) -> None:
        self._session.finish()


class WandbLogger(TrackerLogger):
    """Tells W&B; a run that goes on keeps its id."""

    def __init__(self, options: Wandb, module: Any) -> None:
        super().__init__(module)
        self._options = options

    def start(self, run: Run) -> None:
        options = self._options
        folder = _folder(run, "wandb")
        self._session = self._module.init(
            project=options.project,
            name=options.name or run.out.resolve().name,
            entity=options.entity,
            group=options.group,
            tags=list(options.tags),
            mode=options.mode,
            dir=str(folder.parent),
            id=_identity(folder),
            resume="allow",
            config=_config(run),
            reinit="create_new",
            # what a run prints is its own, and so is the process it runs in
            settings=self._module.Settings(silent=True, console="off"),
        )

    def sample(self, step: int, prompt: str, text: str) -> None:
        page = f"<b>{_escaped(prompt)}</b>{_escaped(text)}"
        self._session.log({f"samples/{prompt}": self._module.Html(page)}, step=step)


class SwanLabLogger(TrackerLogger):
    """Tells SwanLab."""

    def __init__(self, options: SwanLab, module: Any) -> None:
        super().__init__(module)
        self._options = options

    def start(self, run: Run) -> None:
        options = self._options
        self._session = self._module.init(
            project=options.project,
            name=options.name or run.out.resolve().name,
            workspace=options.workspace,
            tags=list(options.tags),
            mode=options.mode,
            log_dir=str(_folder(run, "swanlab")),
            config=_config(run),
        )

    def sample(self, step: int, prompt: str, text: str) -> None:
        self._session.log({f"samples/{prompt}": self._module.Text(text, caption=prompt)}, step=step)


def _folder(run: Run, name: str) -> Path:
    folder = run.out / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _config(run: Run) -> Mapping[str, Any]:
    recipe: Any = yaml.safe_load(run.recipe)
    return {**recipe, "n_parameters": run.n_parameters, "device": run.device}


def _identity(folder: Path) -> str:
    """By which W&B knows the run: drawn once, and kept beside its files."""
    file = folder / "id"
    if not file.is_file():
        file.write_text(secrets.token_hex(4), encoding="ascii")
    return file.read_text(encoding="ascii").strip()


def _escaped(text: str) -> str:
    from html import escape

    return escape(text).replace("\n", "<br>")
