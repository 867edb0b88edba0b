(** Witnesses of Statements/Influence.v: linear losses, and quadratic ones for the effect of removal. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Influence.
From LAI Require Import Vectors Ghost Derivatives Influence Witness Witnesses.Instances.
From LAI Require Statements.Influence.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Ltac take_two := exists 2%N; split=> //.

(* Two validation samples, two parameters, losses whose gradient is the first unit vector. *)
Ltac take_linear R := take_two; take_two; exists (fun=> dot (corner R 1 0)).
Lemma inner_product_slope : ltac:(witness Statements.Influence.inner_product_slope).
Proof.
move=> R; take_linear R; exists (corner R 1 0); split; first exact: corner_neq0.
exists (fun=> corner R 1 0); split=> z; [exact: corner_neq0|exact: gradient_dot].
Qed.

Lemma rule_is_reversed : ltac:(witness Statements.Influence.rule_is_reversed).
Proof.
have two_samples (R : realFieldType) : inner_product (fun _ : 'I_2 => corner R 1 0) (corner R 1 0) = - 2%:R.
  by rewrite /inner_product sumr_const card_ord corner_dot.
have two_opposed (R : realFieldType) : inner_product (fun _ : 'I_2 => corner R 1 0) (- corner R 1 0) = 2%:R.
  by rewrite /inner_product sumr_const card_ord dotNr corner_dot mulNrn opprK.
split=> R; [|split]; take_linear R; exists (corner R 1 0); (split; first exact: corner_neq0);
  exists (fun=> corner R 1 0); (split; first by move=> z; exact: corner_neq0).
- exists (corner R 1 0); split; first exact: corner_neq0; split=> [z|]; first exact: gradient_dot.
  by rewrite two_samples oppr_lt0 ltr0n.
- exists (- corner R 1 0); split; first by rewrite oppr_eq0 corner_neq0.
  by split=> [z|]; [exact: gradient_dot|rewrite two_opposed ltr0n].
exists (corner R 1 0); split; first exact: corner_neq0.
by split=> [z|]; [exact: gradient_dot|exact: corner_neq0].
Qed.

Lemma directional_derivative : ltac:(witness Statements.Influence.directional_derivative).
Proof.
move=> R; take_linear R; exists (dot (corner R 1 0)), (corner R 1 0); split; first exact: corner_neq0.
exists (fun=> corner R 1 0); split=> [z|]; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0.
by split=> [z|]; exact: gradient_dot.
Qed.

Lemma position_score : ltac:(witness Statements.Influence.position_score).
Proof.
move=> R; do 3 take_two; do 2 (exists (corner R 1 1); split; first exact: corner_neq0).
exists (dot (corner R 1 1)), (corner R 1 1); split; first exact: corner_neq0.
split; first exact: gradient_dot.
have G := gradient_mulmx (gradient_dot (corner R 1 1) (corner R 1 1 *m corner R 1 1)).
rewrite trmx_delta mul_delta_mx in G.
by exists (corner R 1 1); split; first exact: corner_neq0.
Qed.

(* Two channels, a kernel of two offsets that reads positions t and t + 1. *)
Lemma convolution_gradient : ltac:(witness Statements.Influence.convolution_gradient).
Proof.
move=> R; take_two; take_two; take_two; exists 3%N; split=> //; exists 3%N; split=> //; take_two; take_two.
pose src (t o : 'I_2) : option 'I_3 := Some (inord (t + o)).
exists src, src; do 2 (exists (corner R 1 2); split; first exact: corner_neq0).
exists (corner R 1 3); split; first exact: (corner_neq0 R 1 3).
exists (dot (corner R 1 1)), (dot (corner R 1 1)); do 2 (exists (corner R 1 1); split; first exact: corner_neq0).
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_mulmx (gradient_dot (corner R 1 1) ((corner R 1 3 : 'M_(2, 2 * 2)) *m unfolded src (corner R 1 2))).
have {}G : gradient (fun X => dot (corner R 1 1) (convolution src (corner R 1 2) X)) (corner R 1 3 : 'M_(2, 2 * 2))
    (corner R 1 1 *m (unfolded src (corner R 1 2))^T).
  by apply: gradient_as G _ => X; rewrite convolutionE.
have nz : corner R 1 1 *m (unfolded src (corner R 1 2))^T != 0.
  apply/eqP => /matrixP /(_ 0 (mxvec_index 0 0)) /eqP.
  rewrite !mxE big_ord_recl big_ord_recl big_ord0 !mxE /= mul0r !addr0 mul1r mxvecE !mxE /= (_ : inord _ = 0).
    by rewrite eqxx oner_eq0.
  by apply: val_inj; rewrite /= inordK.
by do 2 (eexists; split; [exact: nz|]).
Qed.

(* All functions double their argument. *)
Lemma post_activation : ltac:(witness Statements.Influence.post_activation).
Proof.
move=> R; have double x : derivative ( *%R 2%:R : R -> R) x 2%:R.
  by apply: derivative_as (derivative_affine 0 2%:R x) _ _ => // y; rewrite add0r mulrC.
have four : derivative (fun x : R => 2%:R * (2%:R * (x * 1))) 1 4%:R.
  by apply: derivative_as (derivative_affine 0 4%:R 1) _ _ => // y; ring.
exists ( *%R 2%:R), ( *%R 2%:R), ( *%R 2%:R), 1, 1, 1, 2%:R, 2%:R, 2%:R, 2%:R.
split; first by split; exact: double.
split; first by split; exact: double.
by exists 4%:R, 4%:R; split; exact: four.
Qed.

Lemma one_sign : ltac:(witness Statements.Influence.one_sign).
Proof.
move=> R; take_halving R 3%N; split; first exact: halving_A3.
by move=> z l _; rewrite halving_alpha ler01.
Qed.
