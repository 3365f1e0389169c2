"""The experiments of Heikkilä 2025 with noise that is really drawn."""

NAMES = ("table1", "fashion-mnist", "cifar10", "income", "averaging")
