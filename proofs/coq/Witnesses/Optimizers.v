(** Witnesses of Statements/Optimizers.v: linear losses, second moments of 1, decays of 1/2. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Optimizers.
From LAI Require Import Vectors Ghost Witness Witnesses.Instances.
From LAI Require Statements.Optimizers.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Ltac take_two := exists 2%N; split=> //.

Section Ones.
Variable R : ringType.
Definition ones : 'cV[R]_2 := const_mx 1.
Lemma ones_neq0 : ones != 0.
Proof. by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE => /eqP; rewrite oner_eq0. Qed.
Lemma ones_outer_neq0 : ones *m ones^T != 0.
Proof. by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE big_ord1 !mxE mulr1 => /eqP; rewrite oner_eq0. Qed.
End Ones.

(* The decay 1/2, which is strictly between 0 and 1 in every ordered field; the mean starts at a unit vector
   and moves to half of it, which is what each batch has. *)
Section Mean.
Variable R : realFieldType.
Fixpoint averaged k : 'cV[R]_2 :=
  if k is k'.+1 then running_square 2%:R^-1 (averaged k') (corner R 1 1) else corner R 1 0.
Lemma averaged_neq0 k : averaged k != 0.
Proof.
suff h : 0 < averaged k 0 0 by apply: contraTneq h => ->; rewrite mxE ltxx.
have /andP [h0 h1] := half_lt1 R; elim: k => [|k IH]; first by rewrite mxE !eqxx ltr01.
rewrite [averaged _]/= mxE ltr_paddr ?mulr_gt0 // mulr_ge0 ?subr_ge0 ?(ltW h1) // divr_ge0 ?ler0n //.
by apply: sumr_ge0 => i _; apply: sqr_ge0.
Qed.
End Mean.
Lemma running_unrolled : ltac:(witness Statements.Optimizers.running_unrolled).
Proof.
move=> R; take_two; take_two; exists 2%:R^-1, (@averaged R); split; first exact: averaged_neq0.
exists (fun=> corner R 1 1); split=> [k|]; first exact: corner_neq0.
by split=> //; exact: half_lt1.
Qed.

Lemma adam_direction : ltac:(witness Statements.Optimizers.adam_direction).
Proof.
move=> R; take_two; exists (dot (corner R 1 0)), (corner R 1 0); split; first exact: corner_neq0.
exists (ones R); split; first exact: ones_neq0; exists (corner R 1 0); split; first exact: corner_neq0.
by split=> [i|]; [rewrite mxE ltr01|exact: gradient_dot].
Qed.

Lemma adam_readouts : ltac:(witness Statements.Optimizers.adam_readouts).
Proof.
move=> R; exists two; split=> //; take_two; take_two.
exists (fun=> halving R 2); split=> [z l|]; first exact: halving_proper.
exists (halving R 2); split=> [l|]; first exact: halving_proper.
exists (fun=> corner R 1 0); split=> [z|]; first exact: (corner_neq0 R 1 0).
exists (corner R 1 0); split; first exact: (corner_neq0 R 1 0).
exists (fun=> dot (grad (halving R 2) 2)), (dot (grad (halving R 2) 2)), (fun=> ones R *m (ones R)^T).
split=> [l|]; first exact: ones_outer_neq0.
exists (ones R); split; first exact: ones_neq0.
exists (fun=> ones R); split=> [l|]; first exact: ones_neq0.
have outer l : grad (halving R 2) 2 *m (act (halving R 2) l.-1)^T != 0.
  by rewrite /= -scalemxAl corner_outer scaler_eq0 negb_or corner_neq0 andbT expf_neq0 // gt_eqF ?half_gt0.
exists (fun _ l => grad (halving R 2) 2 *m (act (halving R 2) l.-1)^T); split=> [z l|]; first exact: outer.
exists (fun l => grad (halving R 2) 2 *m (act (halving R 2) l.-1)^T); split=> [l|]; first exact: outer.
split=> [z|]; first exact: gradient_dot; split; first exact: gradient_dot.
split; first by split=> [i|l i]; rewrite mxE ltr01.
by split=> // l _; split=> [z|]; exact: (gradient_readout _ (gradient_dot _ _)).
Qed.

Lemma adam_derivative : ltac:(witness Statements.Optimizers.adam_derivative).
Proof.
move=> R; have half := half_lt1 R; have /andP [h0 h1] := half.
take_two; take_two; exists (dot (corner R 1 0));
  do 2 (exists (corner R 1 0); split; first exact: corner_neq0).
exists (fun=> 1), (fun=> corner R 1 0); split=> [z|]; first exact: corner_neq0.
exists ord0, (corner R 1 0); split; first exact: corner_neq0; exists (ones R); split; first exact: ones_neq0.
exists 2%:R^-1, 2%:R^-1, 2%N; split=> //; exists 1, 1, (corner R 1 0); split; first exact: corner_neq0.
split=> [i|].
  rewrite mxE divr_gt0 ?subr_gt0 ?exprn_ilt1 ?(ltW h0) // [ones R _ _]mxE mulr1.
  by rewrite ltr_paddr // mulr_ge0 ?sqr_ge0 ?subr_ge0 ?(ltW h1).
by split=> //; split=> //; split; [exact: ler01|exact: gradient_dot].
Qed.

(* The gradient of the batch has the norm 3, and is clipped at 1. *)
Lemma adam_clipped : ltac:(witness Statements.Optimizers.adam_clipped).
Proof.
move=> R; have half := half_lt1 R; have /andP [h0 h1] := half.
take_two; take_two; exists (dot (corner R 1 0));
  do 2 (exists (corner R 1 0); split; first exact: corner_neq0).
exists (fun=> 1), (fun=> corner R 1 0); split=> [z|]; first exact: corner_neq0.
exists ord0, (corner R 1 0); split; first exact: corner_neq0; exists (ones R); split; first exact: ones_neq0.
exists 2%:R^-1, 2%:R^-1, 2%N; split=> //; exists 1, 1, 1, 1, (corner R 1 0); split; first exact: corner_neq0.
have three : batch (corner R 1 0) (fun=> 1) (fun _ : 'I_2 => corner R 1 0) ord0 1 = 3%:R *: corner R 1 0.
  by rewrite /batch !big_ord_recl big_ord0 /= !scale1r addr0 scaler_nat !mulrS mulr0n addr0.
have norm3 : norm (3%:R *: corner R 1 0) = 3%:R by rewrite normZ corner_norm mulr1 normr_nat.
rewrite !three !norm3; split=> [i|].
  rewrite mxE divr_gt0 ?subr_gt0 ?exprn_ilt1 ?(ltW h0) // [ones R _ _]mxE mulr1.
  by rewrite ltr_paddr // mulr_ge0 ?sqr_ge0 ?subr_ge0 ?(ltW h1).
split; first by split.
split=> //; do 2 (split; first exact: ler01); split; first by rewrite ltr0n.
by split; [rewrite ltr01 -(natrD _ 3 1) ltr1n|exact: gradient_dot].
Qed.

Lemma batch_moments_suffice : ltac:(witness Statements.Optimizers.batch_moments_suffice).
Proof.
move=> R; have half := half_lt1 R; have /andP [h0 h1] := half.
take_two; exists 2%:R^-1, 2%:R^-1, 2%N; split=> //; exists 1, 1; split=> //; split=> //; split; first exact: ler01.
exists (fun _ _ _ _ => 0), 2%N; split=> //; exists (dot (corner R 1 0)).
do 2 (exists (corner R 1 0); split; first exact: corner_neq0).
exists (fun=> 1), (fun=> corner R 1 0); split=> [z|]; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0; exists (ones R); split; first exact: ones_neq0.
exists (corner R 1 0); split; first exact: corner_neq0; split=> [i|]; last exact: gradient_dot.
rewrite mxE divr_gt0 ?subr_gt0 ?exprn_ilt1 ?(ltW h0) // [ones R _ _]mxE mulr1.
by rewrite ltr_paddr // mulr_ge0 ?sqr_ge0 ?subr_ge0 ?(ltW h1).
Qed.

(* A linear loss. *)
Lemma both_sides_reverse : ltac:(witness Statements.Optimizers.both_sides_reverse).
Proof.
move=> R; exists 0, 0, (corner R 1 0), 0, (dot (corner R 1 0)), (corner R 1 0).
by split; [exact: corner_neq0|exact: gradient_dot].
Qed.
