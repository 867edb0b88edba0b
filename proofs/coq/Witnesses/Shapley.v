(** Witnesses of Statements/Shapley.v: the identity as Hessian, or a linear loss. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Descent Shapley.
From LAI Require Import Vectors Witness Witnesses.Instances Witnesses.Descent.
From LAI Require Statements.Shapley.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma one_neq0 (R : ringType) : (1%:M : 'M[R]_2) != 0. Proof. exact: (oner_neq0 [ringType of 'M[R]_2]). Qed.

Lemma midpoint : ltac:(witness Statements.Shapley.midpoint).
Proof.
move=> R; exists 2%N; split=> //; exists 1%:M; split; first exact: one_neq0.
by exists 1; rewrite trmx1 oner_eq0.
Qed.

Lemma step_midpoint : ltac:(witness Statements.Shapley.step_midpoint).
Proof. by move=> R; exists 2%N; split=> //; exists 1%:M; rewrite one_neq0 trmx1. Qed.

Lemma first_order : ltac:(witness Statements.Shapley.first_order).
Proof.
move=> R; exists 2%N; split=> //; exists (dot (corner R 1 0)), (fun=> corner R 1 0), 1, 1 => _.
by split; [exact: linear_gradient|split; [exact: linear_lipschitz|exact: ltr01]].
Qed.
