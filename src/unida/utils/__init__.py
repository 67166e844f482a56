"""Devices, processes, random numbers and files: what every package may use.

Lives here: device and precision choice, distributed helpers, named random generators, chunked
buffers, file locks, threads and memory of the process.
Does not live here: anything about images, methods or runs.
"""
