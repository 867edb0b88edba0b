(** Proofs of Statements/Selection.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Selection.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem self_exclusion : Statements.Selection.self_exclusion.
Proof.
by move=> R p n g j; rewrite (bigD1 j) //= norm_sqr -ltr_subr_addl sub0r.
Qed.
