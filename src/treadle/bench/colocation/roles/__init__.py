"""The processes that are measured. Each speaks JSON lines on its standard streams.

A role says ``loaded`` once its libraries are imported, is told to ``warm``, says ``ready``, and
then for every ``go`` answers with a ``result``, until ``end`` or the end of its input.
"""
