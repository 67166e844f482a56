"""Shared models on the Hugging Face hub: `hf:owner/name`, or `hf:owner/name@revision`."""

import re
from pathlib import Path
from typing import Any

from unida.errors import UserError, require
from unida.models.weights import require_hub
from unida.sharing.folder import FILES
from unida.training.run_folder import RunFolder
from unida.utils.logs import logger

PREFIX = "hf:"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_PLACE = re.compile(rf"({_NAME}/{_NAME})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def is_hub_place(place: str) -> bool:
    """Return whether a text names a model on the hub."""
    return place.startswith(PREFIX)


def parse_place(place: str) -> tuple[str, str | None]:
    """Split `owner/name@revision`, with or without `hf:`, into repository and revision."""
    found = _PLACE.fullmatch(place.removeprefix(PREFIX))
    ok = found is not None and ".." not in place and "--" not in place
    require(ok, "the model on the hub", place, "hf:owner/name or hf:owner/name@revision")
    assert found is not None
    return found[1], found[2]


def download(place: str) -> Path:
    """Download a shared model, or find it on disk where the hub cannot be reached.

    Args:
        place: `hf:owner/name`, or `hf:owner/name@revision`.

    Returns:
        The folder of its files.
    """
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    repo, revision = parse_place(place)
    wanted: dict[str, Any] = {"revision": revision, "allow_patterns": list(FILES)}
    try:
        require_hub()  # the library itself tries for half a minute
        folder = Path(huggingface_hub.snapshot_download(repo, **wanted))
    except RevisionNotFoundError:
        raise UserError(f"{PREFIX}{repo} has no revision {revision!r}.") from None
    except RepositoryNotFoundError:
        raise UserError(
            f"{PREFIX}{repo} is not on the Hugging Face hub, or is private: {LOG_IN}."
        ) from None
    except OSError as error:
        try:
            folder = Path(huggingface_hub.snapshot_download(repo, **wanted, local_files_only=True))
        except OSError:
            raise UserError(
                f"{place} is not on this machine, and the Hugging Face hub cannot be reached "
                f"({_reason(error)}): name a folder instead."
            ) from None
        logger.info("The hub cannot be reached (%s): %s is used as stored.", _reason(error), place)
    if not RunFolder(folder).model.exists():
        raise UserError(f"{place} is no model of unida: there is no model.safetensors in it.")
    return folder


def upload(folder: Path, repo: str, *, private: bool, force: bool, client: Any = None) -> str:
    """Upload a shared model.

    Args:
        folder: of the model.
        repo: `owner/name`; it is made if it is not there.
        private: whether a new repository is.
        force: whether a model that is there is replaced.
        client: what stands for `huggingface_hub.HfApi`.

    Returns:
        The address of the model.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        if client is None:
            require_hub()
            client = HfApi()
        if not force and client.file_exists(repo, FILES[0]):
            raise UserError(f"{PREFIX}{repo} holds a model already: name another, or use --force.")
        address = client.create_repo(repo, private=private, exist_ok=True)
        client.upload_folder(
            repo_id=repo,
            folder_path=str(folder),
            allow_patterns=list(FILES),
            commit_message="Upload a model of unida",
        )
    except HfHubHTTPError as error:
        raise UserError(
            f"The Hugging Face hub refused {repo} ({_reason(error)}): {LOG_IN}, with a token that "
            "may write there."
        ) from None
    except OSError as error:
        raise UserError(
            f"{repo} was not uploaded ({_reason(error)}): the Hugging Face hub cannot be reached, "
            f"or there is no token; {LOG_IN}."
        ) from None
    return str(address)


def _reason(error: Exception) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    status = getattr(getattr(error, "response", None), "status_code", None)
    return f"status {status}" if isinstance(status, int) else type(error).__name__
