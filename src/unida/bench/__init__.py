"""Protocols × methods × seeds → results → tables, figures and settings.

Lives here: jobs, runners (local, Ray), scoring, result files, `tables/`, `figures/`, `tune/`.
Does not live here: what a single run does (`unida.pipeline`).
"""
