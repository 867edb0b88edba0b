(** Witnesses of the definitions in Statements/Gradients.v: an error of 1, a step of its own size. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI Require Import Witness Witnesses.Instances.
From LAI Require Statements.Gradients.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma gradient : ltac:(witness Statements.Gradients.gradient).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists 1; split; first exact: ltr01.
by exists (Statements.Gradients.size1 (corner R 1 1)), (corner R 1 1); split; first exact: corner_neq0.
Qed.

Lemma derivative : ltac:(witness Statements.Gradients.derivative).
Proof. by move=> R; exists 1; split; [exact: ltr01|exists `|1|, 1]. Qed.

Lemma velocity : ltac:(witness Statements.Gradients.velocity). Proof. exact: derivative. Qed.
Lemma continuous : ltac:(witness Statements.Gradients.continuous). Proof. exact: derivative. Qed.
