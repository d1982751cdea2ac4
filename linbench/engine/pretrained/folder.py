"""Folders of language models: local ones, those of the hub, and those that linbench has exported."""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from linbench.common.errors import UserError, shorten
from linbench.common.files import read_regular
from linbench.common.hashing import digest

MAPPING = "linbench.json"
"""The file in which a folder names its own tokens for a task."""

_WEIGHTS, _FILES = "*.safetensors", ("*.json", "*.safetensors", "*.model", "*.txt")
_OTHER_WEIGHTS = ("consolidated*", "original/*", "*/*")
"""Files of a hub's folder that hold the same weights once more, in other formats."""


class Mapping(BaseModel):
    """Tokens that a folder names for a task.

    Args:
        task: name of the task that the model was trained on.
        inputs: the token of each input id.
        answers: the token of each answer id.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    task: str
    inputs: list[int]
    answers: list[int]


class ModelFolder(NamedTuple):
    """A folder with a model, and the name by which it is shown."""

    path: Path
    name: str

    def digest(self) -> str:
        """Return a hash of the weights and of the configuration that says how they are used."""
        files = [self.path / "config.json", *sorted(self.path.glob(_WEIGHTS))]
        return digest({file.name: _file_digest(file) for file in files})

    def mapping(self) -> Mapping | None:
        """Return the tokens that the folder names; None if it names none.

        Raises UserError: its file cannot be read.
        """
        path = self.path / MAPPING
        if not path.is_file():
            return None
        try:
            return Mapping.model_validate_json(read_regular(path))
        except (OSError, ValidationError) as error:
            raise UserError(
                f"{path} does not say which tokens stand for a task; export the model again."
            ) from error


def require_transformers() -> None:
    """Check that transformers is installed. Raises UserError: it is not."""
    if find_spec("transformers") is None:
        raise UserError(
            "models that are already trained need transformers, which is not installed; install it with pip"
            " install 'linbench[transformers]'."
        )


def find_folder(model: str) -> ModelFolder:
    """Return the folder of a model by its path, or by its id on the hub, from where it is fetched.

    Raises UserError: there is no such folder or model, the hub cannot be reached, or the folder lacks a
    configuration or safe weights.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        folder = ModelFolder(path, path.resolve().name)
    elif path.exists():
        raise UserError(f"{shorten(model)} is a file; name the folder that holds the model.")
    elif model.startswith((".", "/", "~")) or model.count("/") > 1 or not model.strip():
        raise UserError(f"there is no folder '{shorten(model)}'; name one with a model, or a model's id.")
    else:
        require_transformers()  # it brings the hub's client
        folder = ModelFolder(_fetch(model), model)
    if not (folder.path / "config.json").is_file():
        raise UserError(f"{shorten(model)} holds no model of transformers: there is no config.json.")
    if not any(folder.path.glob(_WEIGHTS)):
        raise UserError(
            f"{shorten(model)} has no weights in safetensors files; other formats may run code when they are"
            " read, so linbench reads none of them."
        )
    return folder


def _fetch(model: str) -> Path:
    """Return the folder in the hub's cache. What is missing there is fetched."""
    from huggingface_hub import errors, logging, snapshot_download

    logging.set_verbosity_error()
    try:
        found = snapshot_download(model, allow_patterns=[*_FILES], ignore_patterns=[*_OTHER_WEIGHTS])
    except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
        raise UserError(
            f"'{shorten(model)}' is neither a folder here nor the id of a public model on huggingface.co."
        ) from error
    except Exception as error:  # the hub's client raises its own errors and those of two others
        raise UserError(
            f"'{shorten(model)}' is no folder here, huggingface.co cannot be reached and its cache has no"
            " copy; name a local folder, or try again with a network."
        ) from error
    return Path(found)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
