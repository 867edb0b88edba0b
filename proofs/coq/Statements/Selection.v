(** Scores of a batch that is its own validation set. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** When a sample outvotes its batch, of which g are the gradients. *)
(* Implements: self-exclusion *)
Definition self_exclusion := forall (R : rcfType) p n (g : 'I_n -> 'cV[R]_p) j,
  (\sum_z dot (g z) (g j) < 0) = (\sum_(z | z != j) dot (g z) (g j) < - norm (g j) ^+ 2).
