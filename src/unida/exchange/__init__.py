"""A run in other tools: predictions out, corrections in.

Lives here: writers of tables and of the files of FiftyOne, Label Studio and cleanlab, readers of
what a person corrected there. Does not live here: the stored corrections (`unida.review`), a model
as a file (`unida.export`).
"""
