(** What selecting by an approximate score can cost. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** Selecting by v' > 0 in place of v > 0. *)
(* Implements: selection-regret *)
Definition selection_regret := forall (R : realFieldType) n (v v' : 'I_n -> R) lambda,
  (* meaning *) 0 <= lambda ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k `|v k - lambda * v' k|.

(** When a sample outvotes its batch, of which g are the gradients. *)
(* Implements: self-exclusion *)
Definition self_exclusion := forall (R : rcfType) p n (g : 'I_n -> 'cV[R]_p) j,
  (\sum_z dot (g z) (g j) < 0) = (\sum_(z | z != j) dot (g z) (g j) < - norm (g j) ^+ 2).
