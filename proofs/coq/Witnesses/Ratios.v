(** Witnesses of Statements/Ratios.v: three layers, whose gradients halve from one to the next. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Ratios.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma lai_two_sided : ltac:(witness Statements.Ratios.lai_two_sided).
Proof.
move=> R; take_halving R 3%N; exists (fun=> 0), (fun=> 1); split=> [z l _|].
  by rewrite mul0r mul1r halving_decays.
by split=> [z|z l _]; rewrite ?halving_alpha ?halving_signal ler01.
Qed.

(* Each of the three layers has a third of the sum. *)
Lemma relative_below_one : ltac:(witness Statements.Ratios.relative_below_one).
Proof.
move=> R; take_halving R 3%N; exists 3%:R^-1; split=> [z l _|]; first by rewrite halving_alpha ler01.
split=> [z l _|z]; first exact: halving_decays.
by rewrite halving_alphas halving_alpha mulVf ?pnatr_eq0.
Qed.
