/* A silo with its disk, a server that may send anything at any time, and a crash between any two
   steps of the silo.

   A sum has a sequence number (1 … SUMS), a round id (1 … IDS), a variant that stands for
   participants and payload (0, 1), and a key set (1 … SETS); the four together are the transcript.
   The server names any of them, repeats, reorders, has the keys go round whenever it likes, and may
   bring the roster to its next epoch. Certificates for every dropped set are taken to exist: what a
   quorum refuses to sign is left to tests/oracles/schedules.py, here the silo must hold alone.

   With -DBACKUPS a backup may be made once, at any time and beside the silo: first the ledger is copied, then the
   number of the sum in flight. The vault may then be lost once, at any crash, with its ledger or
   without, and is restored from the backup.

   DURABLE(name, effect) is a write that has reached the disk when the next statement begins. The
   process may die before it and after it. tests/model/test_silo_model.py compares the names and
   their order with what the real silo writes.

   Compiled with -DFAULT_… one step is left out or moved, and the checker must find what it costs. */

#ifndef SUMS
#define SUMS 2
#endif
#ifndef IDS
#define IDS 2
#endif
#ifndef SETS
#define SETS 2
#endif

#define TRANSCRIPT(s, i, v, k) ((((s) * 4 + (i)) * 2 + (v)) * 4 + (k))
#define MAY_CRASH if :: skip :: goto crashed fi
#define DURABLE(name, effect) atomic { MAY_CRASH; effect; ratchet_holds() }
#define ANY(variable, low, high) variable = low; do :: variable < high -> variable++ :: break od

/* -- the disk: what a new process finds */
byte  ring_sum, ring_answer;              /* the round in flight; its answer, 0 while there is none */
short ring_transcript;
byte  ring_root[SETS + 1];                /* earliest sum that a key set's roots serve, 0: no roots */
byte  ring_pending;                       /* the key set whose private halves are kept, 0: none */
byte  last_epochs_sum;                    /* in flight when the roster's epoch ended */
short guard_transcript[IDS + 1];
byte  guard_input[IDS + 1], guard_set[IDS + 1], guard_release[IDS + 1];
bool  ledger[SUMS + 1];
byte  forgotten;                          /* no sum up to this one is answered after a restore */

/* -- the backup: on another disk */
byte  backup_steps;                       /* 0: none, 1: the ledger is copied, 2: all is */
bool  backup_ledger[SUMS + 1];
byte  backup_sum;
bool  restored;

/* -- what the world has seen; no part of the silo */
byte drawn[SUMS + 1];                     /* noise is drawn anew each time, so an answer is its draw */
byte answered[SUMS + 1];                  /* the answer that left for a sum */
byte answered_id[IDS + 1];                /* … and for a round id, in this epoch */
byte signed_set[SUMS + 1], revealed_set[SUMS + 1];
byte claimed_under[SETS + 1];             /* the last sum claimed with a key set */
byte sets_made;
bool epoch_over;
#ifdef FAULT_NOTHING
bool has_crashed;
#endif
#ifdef FAULT_RESTORE_KEEPS_ROOTS
byte backup_root;
#endif

byte sum, id, variant, keys, dropped, k;  /* the message at hand */

inline ratchet_holds() {
  /* nothing on the disk opens a sum before the one in flight */
  for (k : 1 .. SETS) {
    assert(claimed_under[k] == 0 || ring_root[k] == 0 || ring_root[k] > claimed_under[k]);
    assert(claimed_under[k] == 0 || ring_pending != k)
  };
  k = 0
}

inline roots_move_behind() {
  for (k : 1 .. SETS) {
    if
    :: k < keys -> ring_root[k] = 0
#ifndef FAULT_ROOTS_STAY
    :: k >= keys && ring_root[k] != 0 && ring_root[k] <= sum -> ring_root[k] = sum + 1
#endif
    :: else
    fi
  };
  k = 0;
  claimed_under[keys] = sum
}

inline one_set_only() {
  /* a silo signs one dropped set of a sum, and reveals under no other */
  assert(signed_set[sum] == 0 || signed_set[sum] == dropped);
  assert(revealed_set[sum] == 0 || revealed_set[sum] == dropped)
}

inline leaves() {
  /* the masked input of the round in flight is sent */
  assert(ledger[sum]);
#ifdef FAULT_RESTORE_NOTHING
  /* a silo whose ledger survived goes on: what is proved of a restore is not empty */
  assert(!restored);
#endif
  assert(answered[sum] == 0 || answered[sum] == answer);
  assert(answered_id[id] == 0 || answered_id[id] == answer);
  answered[sum] = answer;
  answered_id[id] = answer
}

#define ASKED TRANSCRIPT(sum, id, variant, keys)
#define IS_LATER (sum > ring_sum && sum > last_epochs_sum && sum > forgotten)

#ifdef FAULT_REDRAW
#define IS_NEW (IS_LATER || (ring_answer == 0 && ring_transcript == ASKED))
#else
#define IS_NEW IS_LATER
#endif

active proctype silo() {
  byte answer;

idle:
  atomic {
    answer = 0; sum = 0; id = 0; variant = 0; keys = 0; dropped = 0; k = 0;
    if
    :: sets_made < SETS -> goto greeting
    :: ANY(keys, 1, SETS); goto ciphertexts
    :: ANY(sum, 1, SUMS); ANY(id, 1, IDS); ANY(variant, 0, 1); ANY(keys, 1, SETS); goto invitation
    :: ANY(dropped, 1, 2); goto dropped_set
    :: ANY(dropped, 1, 2); goto certificate
    :: !epoch_over -> goto epoch
    fi
  };

greeting:
  DURABLE(pending, sets_made++; ring_pending = sets_made);
  goto idle;

ciphertexts:
  if :: ring_pending == keys :: else -> goto idle fi;
#ifdef FAULT_PRIVATE_HALVES_STAY
  DURABLE(key_set, ring_root[keys] = 1);
#else
  DURABLE(key_set, ring_root[keys] = 1; ring_pending = 0);
#endif
  goto idle;

invitation:
  atomic {
    if :: guard_transcript[id] != 0 && guard_transcript[id] != ASKED -> goto idle :: else fi;
    if :: ring_answer != 0 && ring_transcript == ASKED -> answer = ring_answer; goto send :: else fi;
    if :: IS_NEW :: else -> goto idle fi;
    if
    :: ring_root[keys] != 0 && ring_root[keys] <= sum
    :: IS_NEW && !IS_LATER
    :: else -> goto idle
    fi
  };
/* submit: begin */
#ifdef FAULT_NO_ROUND_IN_FLIGHT
  DURABLE(claim, roots_move_behind());
#else
  DURABLE(claim, ring_sum = sum; ring_answer = 0; ring_transcript = ASKED; roots_move_behind());
#endif
#ifndef FAULT_LEDGER_LATE
  DURABLE(ledger, ledger[sum] = true);
#endif
  atomic { drawn[sum]++; answer = sum * 8 + drawn[sum] };
  if :: guard_input[id] != 0 && guard_input[id] != answer -> goto idle :: else fi;
#ifdef FAULT_REDRAW
  /* sent before it is kept, and without a claim on the round id */
  atomic { leaves() };
#else
  DURABLE(transcript, guard_transcript[id] = ASKED);
  DURABLE(input, guard_input[id] = answer);
#endif
  DURABLE(answer, ring_answer = answer);
/* submit: end */
send:
  atomic { MAY_CRASH; leaves() };
#ifdef FAULT_LEDGER_LATE
  DURABLE(ledger, ledger[sum] = true);
#endif
  goto idle;

dropped_set:
  atomic {
    sum = ring_sum; id = (ring_transcript / 8) % 4;
    if :: ring_sum != 0 && guard_input[id] != 0 :: else -> goto idle fi;
#ifndef FAULT_NO_GUARD
    if :: guard_set[id] == 0 || guard_set[id] == dropped :: else -> goto idle fi
#endif
  };
/* sign: begin */
  DURABLE(survivor_set, guard_set[id] = dropped);
/* sign: end */
  atomic { MAY_CRASH; one_set_only(); signed_set[sum] = dropped };
  goto idle;

certificate:
  atomic {
    sum = ring_sum; id = (ring_transcript / 8) % 4;
    if :: ring_sum != 0 && guard_input[id] != 0 :: else -> goto idle fi;
#ifndef FAULT_NO_GUARD
    if :: guard_set[id] == 0 || guard_set[id] == dropped :: else -> goto idle fi;
    if :: guard_release[id] == 0 || guard_release[id] == dropped :: else -> goto idle fi
#endif
  };
/* reveal: begin */
  DURABLE(survivor_set, guard_set[id] = dropped);
  DURABLE(release, guard_release[id] = dropped);
/* reveal: end */
  atomic { MAY_CRASH; one_set_only(); revealed_set[sum] = dropped };
#ifdef FAULT_NOTHING
  /* the last sum is opened after a crash and an epoch: the proofs are not empty */
  assert(!(has_crashed && epoch_over && sum == SUMS && answered[sum] != 0));
#endif
  goto idle;

epoch:
  /* a new roster: another session with a guard and a ring of its own */
  atomic {
    epoch_over = true;
#ifndef FAULT_EPOCH_FORGETS
    last_epochs_sum = ring_sum;
#endif
    ring_sum = 0; ring_answer = 0; ring_transcript = 0; ring_pending = 0;
    for (k : 1 .. SETS) { ring_root[k] = 0 };
    for (k : 1 .. IDS) {
      guard_transcript[k] = 0; guard_input[k] = 0; guard_set[k] = 0; guard_release[k] = 0;
      answered_id[k] = 0
    };
    k = 0
  };
  goto idle;

crashed:
#ifdef FAULT_NOTHING
  has_crashed = true;
#endif
#ifndef BACKUPS
  goto idle
}
#else
  if
  :: backup_steps == 2 && !restored -> goto lost
  :: goto idle
  fi;

lost:
  /* the vault is gone; of a session the backup has the number of its last sum, and no key */
  atomic {
    restored = true;
    ring_sum = 0; ring_answer = 0; ring_transcript = 0; ring_pending = 0; last_epochs_sum = 0;
    for (k : 1 .. SETS) { ring_root[k] = 0 };
    /* ids of before are gone too: a sum of later has keys that went round anew, whatever its id */
    for (k : 1 .. IDS) {
      guard_transcript[k] = 0; guard_input[k] = 0; guard_set[k] = 0; guard_release[k] = 0;
      answered_id[k] = 0
    };
#ifdef FAULT_RESTORE_KEEPS_ROOTS
    ring_root[1] = backup_root;
#endif
    if :: goto ledger_survived :: goto ledger_lost fi
  };

ledger_survived:
  /* an answer leaves after its entry: the last entry says how far the silo went */
  atomic {
    for (k : 1 .. SUMS) { if :: ledger[k] -> forgotten = k :: else fi };
    goto back
  };

ledger_lost:
  /* whatever is behind the last entry of the copy may have left */
  atomic {
    for (k : 1 .. SUMS) {
      ledger[k] = backup_ledger[k];
      if :: backup_ledger[k] -> forgotten = k :: else fi
    };
#ifdef FAULT_RESTORE_COUNTS_FROM_RING
    forgotten = backup_sum;
#endif
#ifndef FAULT_RESTORE_FORGETS
    for (k : 1 .. SUMS) { if :: k > forgotten -> ledger[k] = true :: else fi };
#endif
#ifndef FAULT_RESTORE_ANSWERS_AGAIN
    forgotten = SUMS;
#endif
    goto back
  };

back:
  atomic {
    for (k : 1 .. SUMS) { assert(answered[k] == 0 || ledger[k]); backup_ledger[k] = false };
    k = 0; backup_sum = 0; ratchet_holds()
  };
  goto idle
}

active proctype keeper() {
  byte n;
  atomic {
    for (n : 1 .. SUMS) { backup_ledger[n] = ledger[n] };
    n = 0; backup_steps = 1
  };
  atomic {
    backup_sum = ring_sum; backup_steps = 2;
#ifdef FAULT_RESTORE_KEEPS_ROOTS
    backup_root = ring_root[1];
#endif
  }
}
#endif
