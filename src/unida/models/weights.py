"""Weight files: downloaded, read without running code, and loaded whole or not at all."""

import pickle
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from unida.errors import UserError, shorten
from unida.models.description import parse_description

FROM_SCRATCH = "none"
WEIGHTS_FILE = "model.safetensors"
"""Name of the file in a repository of the hub."""
CONNECT_SECONDS = 5.0
"""Longest wait for the hub to answer."""

# Parts of published files a backbone has no use for, and counters that some files leave out.
_CLASSIFIER = ("fc.", "classifier.", "head.")
_COUNTER = "num_batches_tracked"
_STATISTICS = ("running_mean", "running_var")


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors or torch file, and the metadata of the former."""
    if not path.is_file():
        raise UserError(f"weights: {path} is not a file.")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                names = file.keys()
                return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise UserError(f"weights: {path} is not a whole safetensors file ({error}).") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's own words advise to run the file's code
        raise UserError(
            f"weights: {path} holds more than plain tensors, which can run code when read: store "
            "its state_dict alone."
        ) from None
    except Exception as error:
        raise UserError(
            f"weights: {path} is not a whole torch file ({type(error).__name__})."
        ) from None
    for nested in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(nested), dict):
            content = content[nested]
    if not isinstance(content, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()
    ):
        raise UserError(f"weights: {path} holds no dictionary of tensors.")
    return content, {}


def load_strictly(
    net: nn.Module, tensors: Mapping[str, Tensor], where: str, assign: bool = False
) -> None:
    """Fill a network from tensors of the same names and shapes, all of them or none.

    Args:
        net: the network.
        tensors: a classifier in them that the network lacks is left out.
        where: they come from, for the error sentence.
        assign: whether they become the network's own, which may be on the meta device.
    """
    expected = net.state_dict()
    given = {k: v for k, v in tensors.items() if k in expected or not k.startswith(_CLASSIFIER)}
    missing = [k for k in expected if k not in given and not k.endswith(_COUNTER)]
    surplus = [k for k in given if k not in expected]
    shapes = [
        f"{k} {tuple(given[k].shape)} for {tuple(expected[k].shape)}"
        for k in expected
        if k in given and given[k].shape != expected[k].shape
    ]
    faults = [
        f"{title}: {shorten(keys)}"
        for title, keys in (("missing", missing), ("unexpected", surplus), ("wrong shape", shapes))
        if keys
    ]
    if faults:
        hint = " It may be of another backbone." if 2 * len(missing) > len(expected) else ""
        raise UserError(f"{where} does not fit this network; {'; '.join(faults)}.{hint}")
    weights = dict(net.named_parameters())
    sick = [
        k
        for k in expected
        if k in given and (k in weights or k.endswith(_STATISTICS)) and not is_finite(given[k])
    ]
    if sick:
        raise UserError(f"{where} holds weights that are not finite: {shorten(sick)}.")
    filled = {k: given[k].to(v.dtype) if k in given else v for k, v in expected.items()}
    net.load_state_dict(filled, assign=assign)


def is_finite(tensor: Tensor) -> bool:
    """Return whether no number is infinite or none at all."""
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the tensors and the description of a model stored by unida; None for other files."""
    if path.suffix != ".safetensors":
        return None
    tensors, metadata = read_weights(path)
    if "unida" not in metadata:
        return None
    return tensors, parse_description(metadata["unida"], str(path))


def download_weights(name: str, repository: str | None) -> Path:
    """Download the published ImageNet weights from the Hugging Face hub, or find them on disk.

    Args:
        name: of the backbone, for the error sentence.
        repository: with torchvision's parameter names; None where there is none.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if repository is None:
        raise UserError(f"weights: {name} has no published file on the hub; name one, or 'none'.")
    try:
        return Path(hf_hub_download(repository, WEIGHTS_FILE, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    try:
        require_hub()  # the library itself tries for half a minute
        return Path(hf_hub_download(repository, WEIGHTS_FILE))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"The ImageNet weights of {name} are not on this machine and the Hugging Face hub "
            f"cannot be reached ({type(error).__name__}): name a file with --weights, or "
            "--weights none to train from scratch."
        ) from None


def require_hub() -> None:
    """Raise an OSError at once where the hub cannot be reached; behind a proxy nothing is known."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE
    from huggingface_hub.errors import OfflineModeIsEnabled

    if HF_HUB_OFFLINE:
        raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
    if getproxies():
        return
    place = urlsplit(ENDPOINT)
    port = place.port or {"http": 80}.get(place.scheme, 443)
    socket.create_connection((place.hostname or "", port), timeout=CONNECT_SECONDS).close()
