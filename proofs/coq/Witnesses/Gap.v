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
move=> R; take_halving R 3%N; exists 2%:R^-1, 1; split; first exact: halving_A1.
by split; [exact: halving_A2|exact: halving_A3].
Qed.

Lemma conservative_sharp : ltac:(witness Statements.Gap.conservative_sharp).
Proof. exact: conservative. Qed.

Lemma gap_without_alignment : ltac:(witness Statements.Gap.gap_without_alignment).
Proof.
move=> R; take_halving R 3%N; exists 2%:R^-1, 1; split; last exact: halving_A2.
by have [/andP [r0 _] all] := halving_A1 R 3 2.
Qed.

(* What is asked of alpha and beta, the sums with them. *)
Section Sums.
Variables (R : realFieldType) (L : nat).
Local Notation trace := (halving R L.+1).
Lemma alpha_ge1 (z : 'I_2) : 1 <= alpha ((fun=> trace) z) trace L.+1. Proof. by rewrite halving_alpha. Qed.
Lemma alphas_ge0 (z : 'I_2) : 0 <= \sum_(1 <= l < L.+1) alpha ((fun=> trace) z) trace l.
Proof. by rewrite halving_alphas ler0n. Qed.
Lemma signals_gt0 : 0 < \sum_(z < 2) beta ((fun=> trace) z) trace L.+1.
Proof. by rewrite /= sumr_const card_ord halving_signal ltr0n. Qed.
End Sums.

Lemma lai_lower_bound : ltac:(witness Statements.Gap.lai_lower_bound).
Proof.
move=> R; take_halving R 3%N; exists 1; split; first by split=> [|z]; [exact: ltr01|exact: alpha_ge1].
by split=> z; [exact: alphas_ge0|rewrite halving_signal ler01].
Qed.

Lemma relative_conservative : ltac:(witness Statements.Gap.relative_conservative).
Proof.
move=> R; take_halving R 3%N; exists 2%:R^-1, 1, 1; split; first exact: halving_A1.
split; first exact: halving_A2; split; first exact: halving_A3.
split; first exact: alphas_ge0.
by split; [split=> [|z]; [exact: ltr01|exact: alpha_ge1]|exact: signals_gt0].
Qed.

Lemma lai_nearer_than_lli : ltac:(witness Statements.Gap.lai_nearer_than_lli).
Proof.
move=> R; take_halving R 3%N.
by rewrite sumr_const card_ord halving_signal -mulr_suml halving_alphas mulr1 -mulr_natr -natrM pnatr_eq0.
Qed.
