"""The methods: one short file per paper, named in `METHODS`.

Lives here: each method's configuration, network parts, losses and predictions, and the presets.
Does not live here: formulas (`unida.losses`, `unida.ops`), the training loop (`unida.training`),
and what is added to every method after training (`unida.decision`).
"""

from unida.methods.base import Method
from unida.methods.cmu import CMU
from unida.methods.dance import DANCE
from unida.methods.dcc import DCC
from unida.methods.gate import GATE
from unida.methods.glc import GLC
from unida.methods.lead import LEAD
from unida.methods.mlnet import MLNet
from unida.methods.ovanet import OVANet
from unida.methods.san import SAN
from unida.methods.source_only import SourceOnly
from unida.methods.spa import SPA
from unida.methods.tnt import TNT
from unida.methods.uan import UAN
from unida.methods.uniot import UniOT

METHODS: dict[str, type[Method]] = {
    "cmu": CMU,
    "dance": DANCE,
    "dcc": DCC,
    "gate": GATE,
    "glc": GLC,
    "lead": LEAD,
    "mlnet": MLNet,
    "ovanet": OVANet,
    "san": SAN,
    "source_only": SourceOnly,
    "spa": SPA,
    "tnt": TNT,
    "uan": UAN,
    "uniot": UniOT,
}

__all__ = ["METHODS", "Method"]
