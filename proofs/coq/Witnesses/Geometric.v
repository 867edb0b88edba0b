(** Witnesses of Statements/Geometric.v: gradients that halve from layer to layer; rho = 1/2. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Geometric.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma half_exists (R : realFieldType) : exists rho : R, 0 < rho < 1.
Proof. by exists 2%:R^-1; exact: half_lt1. Qed.

Section Aligned.
Variables (R : rcfType) (L n : nat).
Local Notation trace := (halving R L).
Local Notation V := (fun _ : 'I_n => trace).
Lemma halving_non_expansive : non_expansive L V trace. Proof. by move=> z l _; rewrite !halving_cos. Qed.
Lemma halving_variant : variant L V trace. Proof. by move=> z l _; rewrite !halving_cos. Qed.
Lemma halving_lli : lli L.+1 (fun _ : 'I_2 => halving R L.+1) (halving R L.+1) != 0.
Proof. by rewrite /lli sumr_const card_ord halving_alpha halving_signal mul1r pnatr_eq0. Qed.
End Aligned.

Lemma alignment_decay : ltac:(witness Statements.Geometric.alignment_decay).
Proof.
move=> R; take_halving R 2%N; exists 2%:R^-1; split; first exact: halving_A1.
by split; [exact: halving_non_expansive|exists 2%N].
Qed.

Lemma alignment_implies_decay : ltac:(witness Statements.Geometric.alignment_implies_decay).
Proof.
move=> R; take_halving R 2%N; exists 2%:R^-1; split; first exact: halving_A1.
split; first exact: halving_variant.
by split=> [z|]; [rewrite halving_cos ler01|exists 2%N].
Qed.

Lemma variant_of_A3 : ltac:(witness Statements.Geometric.variant_of_A3).
Proof. exact: alignment_implies_decay. Qed.

Lemma lli_gap : ltac:(witness Statements.Geometric.lli_gap).
Proof.
move=> R; take_halving R 3%N; exists 2%:R^-1, 1; split; first exact: halving_A1.
by split; [exact: halving_A2|exact: halving_non_expansive].
Qed.

Lemma lli_relative_gap : ltac:(witness Statements.Geometric.lli_relative_gap).
Proof.
move=> R; take_halving R 3%N; exists 2%:R^-1, 1, 1; split; first exact: halving_A1.
split; first exact: halving_A2; split; first exact: halving_non_expansive.
split; first by split=> [|z]; rewrite ?ltr01 ?halving_alpha.
by split=> [z|]; [rewrite halving_signal ler01|exact: halving_lli].
Qed.

Lemma printed_bound_fails : ltac:(witness Statements.Geometric.printed_bound_fails).
Proof. by move=> R; exact: half_exists. Qed.

Lemma printed_relative_bound_fails : ltac:(witness Statements.Geometric.printed_relative_bound_fails).
Proof. by move=> R; exists 2%:R^-1; rewrite half_gt0 mul1r lexx. Qed.

Lemma sum_grows_with_depth : ltac:(witness Statements.Geometric.sum_grows_with_depth).
Proof. by move=> R; exact: half_exists. Qed.

Lemma relative_limit : ltac:(witness Statements.Geometric.relative_limit).
Proof.
move=> R; take_halving R 3%N; exists 1; split=> [z l _|].
  have /andP [b0 b1] := halving_decays R 3 l.
  by rewrite mul1r (ger0_norm b0) (ger0_norm (le_trans b0 b1)).
by rewrite sumr_const card_ord halving_signal mul1r halving_alphas -mulr_natr -natrM pnatr_eq0.
Qed.

Lemma assumptions_met : ltac:(witness Statements.Geometric.assumptions_met).
Proof.
have found (R : rcfType) : exists n, (1 < n)%N /\ exists L, (1 < L)%N /\ exists rho : R, 0 < rho < 1 /\
    exists (d : nat -> nat) (_ : forall l, 'M[R]_(d l.+1, d l)) (_ : 'I_n.+1 -> trace R d) (_ : trace R d) (_ _ : R) l,
    (1 < l)%N /\ (0 < l <= L.+2)%N.
  have [rho r] := half_exists R; exists 2%N; split=> //; exists 2%N; split=> //; exists rho; split=> //.
  by exists two, (fun=> corner R 1 1), (fun=> halving R 2), (halving R 2), 1, 1, 2%N.
by split=> R; exact: found.
Qed.
