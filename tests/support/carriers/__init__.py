"""Each engine's own driver, with the silos of a `LocalFederation` at the other end and no network:
`carriers/NAME.py` offers `driver(federation)`. An engine without one fails its conformance test.
"""
