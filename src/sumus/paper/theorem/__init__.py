"""The counter-example to theorem 4.5 of Heikkilä 2025 with several local steps, as an attack that
runs.
"""
