"""Flower as the engine: the one most people know. Every message starts a process at the silo, which
finds all it needs in its folder.
"""
