"""The data sets that a plan can name: a file each, which lists its sets in `SETS`.

A file that is put here is in the catalogue; nothing else has to name it.
"""
