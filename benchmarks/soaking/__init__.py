"""A year of a federation in an hour: real processes that are hurt, changed and measured.

`federation` has the parties as an operator starts them, `office` the people who queue and approve
plans, `faults` what is done to the processes, `changes` what a consortium does in a year, `sampling`
what is measured meanwhile, `verifying` what must hold afterwards, `slopes` whether something grows,
`figures` the plots. `benchmarks/soak.py` runs it.
"""
