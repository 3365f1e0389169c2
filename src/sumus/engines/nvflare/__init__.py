"""NVIDIA FLARE as the engine: mutual TLS, one process per silo and job, sites that refuse foreign
code. It moves bytes and nothing else.
"""
