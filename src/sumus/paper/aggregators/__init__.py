"""Ways to add up vectors that the protocol of `sumus.secagg` is compared with.

`trusted` is the ideal, `gopa` cancels pairwise noise without a server's help, `turbo` relays shares
round a ring of groups (over the Galois ring of `galois`). `comparison` runs them all behind one
call.
"""
