"""What people read after a run: one self-contained page, and loggers for tools they already use."""
