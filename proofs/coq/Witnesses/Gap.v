(** Witnesses of Statements/Gap.v: three layers, whose gradients halve from one to the next. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Gap.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma bounded_similarity : ltac:(witness Statements.Gap.bounded_similarity).
Proof. by move=> R; take_halving R 2%N; exists 1; split; [apply: halving_A2|exists 2%N]. Qed.

Lemma norm_product_bound : ltac:(witness Statements.Gap.norm_product_bound).
Proof. by move=> R; take_halving R 2%N; exists 2%:R^-1; split; [apply: halving_A1|exists 2%N]. Qed.

Lemma zeta_bound : ltac:(witness Statements.Gap.zeta_bound).
Proof. by move=> R; take_halving R 2%N; exists 1; split; [apply: halving_A2|apply: halving_A3]. Qed.

Lemma conservative : ltac:(witness Statements.Gap.conservative).
Proof.
by move=> R; take_halving R 3%N; exists 2%:R^-1, 1; split; [apply: halving_A1|split; [apply: halving_A2|apply: halving_A3]].
Qed.
