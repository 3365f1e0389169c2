"""The experiments of the paper with noise that is really drawn, and the search for hyper-parameters."""

NAMES = ("table1", "fashion-mnist", "cifar10", "income", "averaging")
