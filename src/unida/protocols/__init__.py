"""Benchmark data sets as data: class splits, counts, tasks, readers of published lists.

Lives here: one TOML file a data set under `sets/`, its schema, task files, `data check`.
Does not live here: running a benchmark (`unida.bench`).
"""
