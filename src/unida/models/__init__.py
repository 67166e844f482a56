"""Backbones, heads and layers: images → features → outputs.

Lives here: the registry of backbones, heads that methods share, safe weight files.
Does not live here: losses, training, anything fitted after training.
"""
