"""What files of transport keys are called."""

__all__ = ["REQUEST", "TRANSPORT_KEY"]

TRANSPORT_KEY = ".tls.key"
"""What the name of a key's file ends with."""
REQUEST = ".csr"
"""What the name of a request's file ends with."""
