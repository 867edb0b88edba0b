(** Witnesses of Statements/Products.v: Jacobians that are the identity, in width 2. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Products.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Products.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Definition identity (R : ringType) k : 'M[R]_(two k.+1, two k) := 1%:M.
Lemma identity_neq0 (R : ringType) k : identity R k != 0. Proof. exact: (oner_neq0 [ringType of 'M[R]_2]).
  Qed.

Lemma backward_product : ltac:(witness Statements.Products.backward_product).
Proof.
move=> R; exists two; split=> //; exists (identity R); split; first exact: identity_neq0.
by exists (fun=> corner R 1 0); split=> k; [exact: corner_neq0|rewrite mul1mx].
Qed.

Lemma signal_and_noise : ltac:(witness Statements.Products.signal_and_noise).
Proof.
move=> R; exists two; split=> //; exists (identity R); split; first exact: identity_neq0.
exists (fun=> corner R 1 1); split=> [k|]; first exact: corner_neq0.
exists 2%N; split=> //; eexists; split; last by [].
rewrite /operator /between /= !conform_mx_id /= !mulmx1 mul_delta_mx.
by apply/eqP => /matrixP /(_ 1 1); rewrite !mxE /= sub0r => /eqP; rewrite oppr_eq0 oner_eq0.
Qed.

Lemma bilinear_form : ltac:(witness Statements.Products.bilinear_form).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists 1%:M; split;
  first exact: (identity_neq0 R 0).
exists 1%:M; split; first exact: (identity_neq0 R 0).
exists (corner R 1 0); split; first exact: corner_neq0; exists (corner R 1 0); split;
  first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0; exists (corner R 1 0); split;
  first exact: corner_neq0.
by rewrite mul1mx.
Qed.

Lemma last_layer : ltac:(witness Statements.Products.last_layer).
Proof. by move=> _; exists two. Qed.

Lemma perturbation_norm : ltac:(witness Statements.Products.perturbation_norm).
Proof.
move=> R; exists two; split=> //; exists (identity R); split; first exact: identity_neq0.
exists (identity R); split; first exact: identity_neq0.
have gain k : gain_le (identity R k) 1 by split=> [|v]; [exact: ler01|rewrite mul1mx mul1r].
by exists (fun=> 1), (fun=> 1).
Qed.
