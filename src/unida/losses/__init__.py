"""Losses: pure functions, tensors in, one scalar out; no config, no module, no state.

One file per loss family. Each docstring has the equation in the paper's symbols, the shapes, the
reference and an example. What losses are built from (clustering, transport, kernels) is in
`unida.ops`.
"""

from unida.losses.all_in_one import all_in_one
from unida.losses.contrastive import info_nce, soft_contrastive
from unida.losses.dance import entropy_separation, neighbourhood_clustering
from unida.losses.dcc import contrastive_domain_discrepancy, memory_contrast
from unida.losses.domain_adversarial import domain_adversarial
from unida.losses.energy import energy_margin, unknown_entropy
from unida.losses.entropy import assignment_entropy, open_entropy, word_usage
from unida.losses.evidential import evidential, evidential_kl, uncertainty_separation
from unida.losses.feature_spaces import space_separation
from unida.losses.mlnet import consistency, mixture_rejection, neighbourhood_invariance
from unida.losses.multi_sample import multi_sample_contrast
from unida.losses.one_vs_all import one_vs_all
from unida.losses.soft_cross_entropy import soft_cross_entropy
from unida.losses.subgraph import subgraph_contrast

__all__ = [
    "all_in_one",
    "assignment_entropy",
    "consistency",
    "contrastive_domain_discrepancy",
    "domain_adversarial",
    "energy_margin",
    "entropy_separation",
    "evidential",
    "evidential_kl",
    "info_nce",
    "memory_contrast",
    "mixture_rejection",
    "multi_sample_contrast",
    "neighbourhood_clustering",
    "neighbourhood_invariance",
    "one_vs_all",
    "open_entropy",
    "soft_contrastive",
    "soft_cross_entropy",
    "space_separation",
    "subgraph_contrast",
    "uncertainty_separation",
    "unknown_entropy",
    "word_usage",
]
