(** Random sketches: their mean and their variance, over signs and over groups.

    A matrix has one row an output and one column a position; a vector is a matrix of one column. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra.
From LAI.Statements Require Import Networks Laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Signs of d outputs, 1 or -1, and the sketch that adds outputs up in groups with them. *)
Definition sign (R : ringType) d (s : {ffun 'I_d -> bool}) i : R := (-1) ^+ s i.
Definition sketch (R : ringType) d w n (group : 'I_d -> 'I_w) s (g : 'M[R]_(d, n)) : 'M_(w, n) :=
  \matrix_(b, a) \sum_(i | group i == b) sign R s i * g i a.

(** A sketched inner product has the mean of the inner product, for any groups: all 2^d signs are equally
    likely. *)
(* Implements: sketch-unbiased *)
Definition sketch_unbiased := forall (R : realFieldType) d w n (P : law R [finType of {ffun 'I_d -> bool}])
    (group : 'I_d -> 'I_w) (g h : 'M[R]_(d, n)),
  (* signs are independent and fair *) (forall s, prob P s = 1 / 2%:R ^+ d) ->
  mean P (fun s => dot (sketch group s g) (sketch group s h)) = dot g h.

(** The variance of a sketched inner product, for any groups: over the pairs of outputs that share a group. *)
(* Implements: sketch-variance *)
Definition sketch_variance := forall (R : realFieldType) d w n (P : law R [finType of {ffun 'I_d -> bool}])
    (group : 'I_d -> 'I_w) (g h : 'M[R]_(d, n)),
  (* signs are independent and fair *) (forall s, prob P s = 1 / 2%:R ^+ d) ->
  let M := g *m h^T in
  var P (fun s => dot (sketch group s g) (sketch group s h))
  = \sum_b \sum_(i | group i == b) \sum_(k | (group k == b) && (i != k)) (M i k ^+ 2 + M i k * M k i).

Section Runs.
Variables (d w : nat).
(* Places of d outputs, cut into w.+1 runs: the run of a place, how many places a full run has, how many runs
   are full and how many places are in the next one. *)
Definition run_size := ((d + w) %/ w.+1)%N.
Definition run (place : 'I_d) : 'I_w.+1 := inord (place %/ run_size).
Definition full := (d %/ run_size)%N.
Definition left_over := (d %% run_size)%N.
(* The chance that two outputs share a run. *)
Definition chance (R : fieldType) : R :=
  (full%:R * run_size%:R * (run_size%:R - 1) + left_over%:R * (left_over%:R - 1)) / (d%:R * (d%:R - 1)).
End Runs.

(** The variance over signs and permutations: two outputs share one of w.+1 runs with one chance, which is at
    most 1 / w.+1, and is that much exactly where all runs but empty ones are full and none could be
    shorter. *)
(* Implements: sketch-permutation *)
Definition sketch_permutation := forall (R : realFieldType) d w n (P : law R [finType of {ffun 'I_d -> bool}])
    (Q : law R [finType of 'S_d]) (J : law R [finType of {ffun 'I_d -> bool} * 'S_d]) (g h : 'M[R]_(d, n)),
  (* signs are independent and fair *) (forall s, prob P s = 1 / 2%:R ^+ d) ->
  (* outputs are permuted uniformly *) (forall pi, prob Q pi = 1 / d`!%:R) ->
  (* the permutation is independent of the signs *) (forall s pi, prob J (s, pi) = prob P s * prob Q pi) ->
  (* $d > 1$ *) (1 < d)%N ->
  let M := g *m h^T in
  let q := chance d w R in
  let group (pi : 'S_d) i := run w (pi i) in
  let variance := var J (fun x => dot (sketch (group x.2) x.1 g) (sketch (group x.2) x.1 h)) in
  [/\ forall i k, i != k -> mean Q (fun pi => (group pi i == group pi k)%:R) = q,
      variance = q * (dot M M + \tr (M *m M) - 2%:R * \sum_i M i i ^+ 2),
      q <= 1 / w.+1%:R /\ variance <= (dot M M + \tr (M *m M)) / w.+1%:R
    & (q == 1 / w.+1%:R) = (run_size d w %| d)%N && ((run_size d w).-1 * w.+1 == d.-1)%N].
