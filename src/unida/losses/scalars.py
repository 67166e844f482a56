"""Numbers shared by several losses."""

EPS = 1e-8
"""Added inside logarithms where the released code of OVANet and SAN does so."""
