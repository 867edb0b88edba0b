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
  by rewrite two_samples oppr_lt0 ltr0n; split=> //; exists 1, 1; rewrite ltr01 lexx.
- exists (- corner R 1 0); split; first by rewrite oppr_eq0 corner_neq0.
  split=> [z|]; first exact: gradient_dot.
  by rewrite two_opposed ltr0n; split=> //; exists 1, 1; rewrite ltr01 lexx.
exists (corner R 1 0); split; first exact: corner_neq0.
by split=> [z|]; [exact: gradient_dot|exact: corner_neq0].
Qed.

Lemma directional_derivative : ltac:(witness Statements.Influence.directional_derivative).
Proof.
move=> R; take_linear R; exists (dot (corner R 1 0)), (corner R 1 0); split; first exact: corner_neq0.
exists (fun=> corner R 1 0); split=> [z|]; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0.
split=> [z|]; first exact: gradient_dot.
split; first exact: gradient_dot.
exists (dot (corner R 1 0) (\sum_(z < 2) corner R 1 0)), 0, 1, 1; split; first exact: ltr01.
split=> [e _|]; last by exists 1; rewrite normr1 ltr01 lexx.
by rewrite scale0r addr0 dotDr dotZr mul0r addr0 mulrC subrr normr0 mul1r exprn_ge0.
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
exists (dot (corner R 1 1)), (dot (corner R 1 1));
  do 2 (exists (corner R 1 1); split; first exact: corner_neq0).
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_mulmx (gradient_dot (corner R 1 1)
  ((corner R 1 3 : 'M_(2, 2 * 2)) *m unfolded src (corner R 1 2))).
have {}G : gradient (fun X => dot (corner R 1 1) (convolution src (corner R 1 2) X))
  (corner R 1 3 : 'M_(2, 2 * 2))
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

(* The other sample votes against it, with twice the weight. *)
Lemma own_vote : ltac:(witness Statements.Influence.own_vote).
Proof.
move=> R; take_two; take_two.
exists (fun z : 'I_2 => (if z == ord0 then 1 else - 2%:R) *: corner R 1 0); split=> [z|].
  by rewrite scaler_eq0 negb_or corner_neq0 andbT; case: (z == ord0); rewrite ?oppr_eq0 ?oner_eq0 ?pnatr_eq0.
exists ord0; rewrite !big_ord_recl big_ord0 /= !scale1r dotZl corner_dot addr0 mulr1.
by rewrite -(opprK 1) -opprD oppr_lt0 addrC subr_gt0 opprK ltr1n.
Qed.

Lemma one_sign : ltac:(witness Statements.Influence.one_sign).
Proof.
move=> R; take_halving R 3%N; split; first exact: halving_A3.
by move=> z l _; rewrite halving_alpha ler01.
Qed.

(* Half the squared norm, but for a linear part; two such losses, of which one is removed. *)
Section Quadratic.
Variables (R : realFieldType) (p : nat).
Lemma entry_size (D : 'cV[R]_p) i k : `|D i k| <= size1 D.
Proof.
rewrite /size1 (bigD1 i) //= (bigD1 k) //= -addrA ler_addl addr_ge0 //; first exact: sumr_ge0.
by apply: sumr_ge0 => ? _; apply: sumr_ge0.
Qed.
Lemma gradient_quadratic (b x : 'cV[R]_p) : gradient (fun y => dot y y / 2%:R + dot b y) x (x + b).
Proof.
move=> e e0; exists e => // D hD; rewrite dotDl !dotDr (dotDl x b D) (dotC D x).
set q := dot D D; have -> : (dot x x + dot x D + (dot x D + q)) / 2%:R + (dot b x + dot b D)
  - (dot x x / 2%:R + dot b x) - (dot x D + dot b D) = q / 2%:R by field.
have hq : `|q| <= size1 D * size1 D.
  rewrite {1}/size1 mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => i _.
  rewrite mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => k _.
  by rewrite normrM ler_wpmul2l // entry_size.
rewrite normrM normfV normr_nat; apply: (@le_trans _ _ `|q|).
  by rewrite ler_pdivr_mulr ?ltr0n // ler_pemulr ?ler1n.
by apply: le_trans hq _; rewrite ler_wpmul2r ?size1_ge0.
Qed.
End Quadratic.

Lemma removal : ltac:(witness Statements.Influence.removal).
Proof.
move=> R; take_two; take_two; take_two; pose c := corner R 1 0.
pose b (i : 'I_2) := (if i == ord0 then - 2%:R else 0) *: c.
pose path (e : R) := (2%:R / (2%:R - e)) *: c.
have away (h : R) : `|h| <= 1 -> 1 <= 2%:R - h.
  by move=> /ler_normlP [_ h1]; rewrite ler_subr_addr (natrD _ 1 1) ler_add2l.
have path0 : path 0 = c by rewrite /path subr0 divff ?pnatr_eq0 // scale1r.
exists (fun i x => dot x x / 2%:R + dot (b i) x), (fun i x => x + b i), (fun=> 1%:M).
split=> [i|]; first exact: (oner_neq0 [ringType of 'M[R]_2]).
exists (fun=> dot c), (fun=> c); split=> [i|]; first exact: corner_neq0.
exists c; split; first exact: corner_neq0; exists ord_max, path; split=> [z|]; first exact: gradient_dot.
split=> [i|].
  split=> [x|]; first exact: gradient_quadratic.
  move=> e e0; set x := c.
  exists 1 => // D _; rewrite mul1mx (addrAC x D) (addrAC (x + b i)) subrr add0r subrr size1_0.
  by rewrite mulr_ge0 ?size1_ge0 ?(ltW e0).
split; first by rewrite !big_ord_recl big_ord0 /b /= scale0r !addr0 scaleNr scaler_nat addrAC -mulr2n subrr.
split; first by rewrite sumr_const card_ord -scaler_nat unitmxZ ?unitmx1 // unitfE pnatr_eq0.
split; first split=> // e e0.
  exists (Num.min 1 e) => [|h]; first by rewrite lt_minr ltr01.
  rewrite le_minr => /andP [/away h1 he]; have h0 : 2%:R - h != 0 by rewrite gt_eqF // (lt_le_trans ltr01).
  rewrite add0r path0 /path -{2}[c]scale1r -scalerBl (_ : _ - 1 = h / (2%:R - h)); last by field.
  rewrite size1Z size1_delta mulr1; apply: le_trans he; rewrite normrM normfV (ger0_norm (le_trans ler01 h1)).
  by rewrite ler_pdivr_mulr ?(lt_le_trans ltr01) // ler_pemulr.
exists 1 => // e /away h1; have h0 : 2%:R - e != 0 by rewrite gt_eqF // (lt_le_trans ltr01).
have G i := gradient_quadratic (b i) (path e).
have := gradient_add (gradient_sum (index_enum _) G) (gradient_scale (- e) (G ord_max)).
have -> : \sum_i (path e + b i) + - e *: (path e + b ord_max) = 0.
  rewrite !big_ord_recl big_ord0 /b /path /= scale0r !addr0 scalerA -!scalerDl
    (_ : _ + _ = 0 :> R) ?scale0r //.
  by field.
by move=> H; apply: gradient_as H _ => x; rewrite mulNr.
Qed.

Lemma removal_of_quadratics : ltac:(witness Statements.Influence.removal_of_quadratics).
Proof.
move=> R; take_two; take_two; take_two; pose c := corner R 1 0; have c0 : c != 0 by exact: corner_neq0.
pose b (i : 'I_2) := (if i == ord0 then - 3%:R else 1) *: c.
exists (fun i x => dot x x / 2%:R + dot (b i) x), (fun=> 1%:M).
split=> [i|]; first exact: (oner_neq0 [ringType of 'M[R]_2]).
exists b; split=> [i|].
  by rewrite scaler_eq0 negb_or c0 andbT; case: (i == ord0); rewrite ?oppr_eq0 ?pnatr_eq0 ?oner_eq0.
exists (fun=> dot c), (fun=> c); split=> [i|] //; exists c; split=> //.
split=> [z|]; first exact: gradient_dot.
split=> [i x|]; first by rewrite mul1mx; exact: gradient_quadratic.
split; last first.
  split; first by rewrite sumr_const card_ord -scaler_nat unitmxZ ?unitmx1 // unitfE pnatr_eq0.
  by exists (fun=> 0), 1, 0; rewrite normr0.
rewrite !big_ord_recl big_ord0 /b /= !mul1mx addr0 -{1 3}[c]scale1r -!scalerDl
  (_ : _ + _ = 0 :> R) ?scale0r //.
ring.
Qed.

(* Any path, and a share of it. *)
Lemma printed_sign_is_wrong : ltac:(witness Statements.Influence.printed_sign_is_wrong).
Proof. by move=> R; exists 0, 0, (fun=> 0), (fun _ _ => 0), 1; exact: lexx. Qed.
