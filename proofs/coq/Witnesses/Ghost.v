(** Witnesses of Statements/Ghost.v: linear losses; gradients and inputs along the first unit vector. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Ghost.
From LAI Require Import Vectors Ghost Witness Witnesses.Instances.
From LAI Require Statements.Ghost.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The next number is 2; the next matrix, here or further down, is the corner matrix. *)
Ltac take_two := exists 2%N; split=> //.
Ltac take_corner := eexists; split; [exact: corner_neq0|].


Lemma pre_activation : ltac:(witness Statements.Ghost.pre_activation).
Proof.
move=> R; take_two; take_two; exists (corner R 1 1); split; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0; exists (corner R 1 0); split;
  first exact: corner_neq0.
exists (dot (corner R 1 0)), (dot (corner R 1 0)); take_corner; take_corner.
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_mulmx (gradient_dot (corner R 1 0) (corner R 1 1 *m corner R 1 0)).
by rewrite corner_outer in G; take_corner; take_corner.
Qed.

(* The gradients of the weights, of the readouts. *)
Lemma halving_outer_neq0 (R : realFieldType) L l k : grad (halving R L) l *m (act (halving R L) k)^T != 0.
Proof.
by rewrite /= -scalemxAl corner_outer scaler_eq0 negb_or corner_neq0 andbT expf_neq0 // gt_eqF ?half_gt0.
Qed.

Lemma ghost_influence : ltac:(witness Statements.Ghost.ghost_influence).
Proof.
have outer R l := halving_outer_neq0 R 2 l l.-1.
split=> R; exists two; split=> //; take_two; take_two; exists (fun=> corner R 1 1);
  (split; first by move=> l; exact: (corner_neq0 R 1 1));
  exists (fun=> halving R 2); (split; first by move=> z l; exact: halving_proper);
  exists (halving R 2); (split; first exact: halving_proper);
  exists (fun _ l => dot (grad (halving R 2) l)), (fun l => dot (grad (halving R 2) l));
  (split; first by move=> l _; split=> [z|]; exact: gradient_dot).
  by exists 2%N.
exists (fun _ l => grad (halving R 2) l *m (act (halving R 2) l.-1)^T); split=> [z l|]; first exact: outer.
exists (fun l => grad (halving R 2) l *m (act (halving R 2) l.-1)^T); split=> [l|l _]; first exact: outer.
by split=> [z|]; exact: (gradient_mulmx (gradient_dot _ _)).
Qed.

Lemma bias : ltac:(witness Statements.Ghost.bias).
Proof.
move=> R; take_two; take_two; exists (corner R 1 1); split; first exact: corner_neq0.
do 3 (exists (corner R 1 0); split; first exact: corner_neq0).
exists (dot (corner R 1 0)), (dot (corner R 1 0)); take_corner; take_corner.
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_bias (gradient_dot (corner R 1 0) (corner R 1 1 *m corner R 1 0 + corner R 1 0)).
have nz : corner R 1 0 *m (col_mx (corner R 1 0) 1%:M)^T != 0.
  apply/eqP => /matrixP /(_ 0 (lshift 1 0)); rewrite !mxE big_ord1 tr_col_mx row_mxEl !mxE eqxx mulr1 => /eqP.
  by rewrite oner_eq0.
by eexists; split; first exact: nz; eexists; split; first exact: nz.
Qed.

Lemma positions : ltac:(witness Statements.Ghost.positions).
Proof.
move=> R; do 4 take_two; do 3 (exists (corner R 1 1); split; first exact: corner_neq0).
exists (dot (corner R 1 1)), (dot (corner R 1 1)); take_corner; take_corner.
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_mulmx (gradient_dot (corner R 1 1) (corner R 1 1 *m corner R 1 1)).
rewrite trmx_delta mul_delta_mx in G.
by take_corner; take_corner.
Qed.

(* A loss that is linear in the copies: each copy k has the gradient g a^T, g and a the first unit vectors. *)
Section Copies.
Variables (R : realFieldType) (u : nat).
Local Notation H := (\matrix_(k < u) mxvec (corner R 1 1)).
Lemma linear_uses : uses (corner R 1 1) (dot H) (fun=> corner R 1 0) (fun=> corner R 1 0).
Proof.
split=> [|k]; first by exists H; exact: gradient_dot.
exists (fun s => dot (corner R 1 0) s + (dot H (tied u (corner R 1 1)) - dot (corner R 1 1) (corner R 1 1))).
  exact: gradient_affine.
move=> X; have -> : changed (corner R 1 1) k X = tied u (corner R 1 1) + put k (X - corner R 1 1).
  apply/matrixP => k' i; rewrite !mxE; case: eqP => _; last by rewrite mxE addr0.
  by rewrite linearB !mxE addrC subrK.
rewrite dotDr dot_put rowK mxvecK dotBr addrCA; congr (_ + _).
by rewrite -corner_outer dot_mulr trmxK.
Qed.
Lemma linear_tied : gradient (fun X => dot H (tied u X)) (corner R 1 1) (u%:R *: corner R 1 1).
Proof. by have := gradient_sharing linear_uses; rewrite sumr_const card_ord corner_outer scaler_nat. Qed.
End Copies.

Lemma sharing : ltac:(witness Statements.Ghost.sharing).
Proof.
move=> R; do 4 take_two; exists (corner R 1 1); split; first exact: corner_neq0.
eexists; eexists; do 4 (exists (fun=> corner R 1 0); split=> [k|]; first exact: corner_neq0).
split; first by split; exact: linear_uses.
have nz : 2%:R *: corner R 1 1 != 0 by rewrite scaler_eq0 negb_or corner_neq0 pnatr_eq0.
by do 2 (exists (2%:R *: corner R 1 1); split=> //); split; exact: linear_tied.
Qed.

(* Position t reads row t. *)
Lemma embedding : ltac:(witness Statements.Ghost.embedding).
Proof.
move=> R; do 4 take_two; exists (corner R 1 1); split; first exact: corner_neq0.
exists id, id, (dot (corner R 1 1)), (dot (corner R 1 1)); take_corner; take_corner.
split; first exact: gradient_dot; split; first exact: gradient_dot.
have G := gradient_rows (gradient_dot (corner R 1 1) (rowsub id (corner R 1 1))).
rewrite (_ : rowsub id 1%:M = 1%:M) in G; last by apply/matrixP => i k; rewrite !mxE.
rewrite trmx1 mul1mx in G.
by take_corner; take_corner.
Qed.

Lemma gain : ltac:(witness Statements.Ghost.gain).
Proof.
move=> R; do 2 take_two; exists (corner R 1 1); split; first exact: corner_neq0.
do 2 (exists (corner R 1 0); split; first exact: corner_neq0).
by exists (dot (corner R 1 1)); take_corner; exact: gradient_dot.
Qed.

Lemma virtual_readout : ltac:(witness Statements.Ghost.virtual_readout).
Proof.
have outer R l := halving_outer_neq0 R 2 2 l.-1.
split=> R; exists two; split=> //; take_two; take_two;
  exists (fun=> halving R 2); (split; first by move=> z l; exact: halving_proper);
  exists (halving R 2); (split; first exact: halving_proper);
  exists (fun=> corner R 1 0); (split; first by move=> z; exact: (corner_neq0 R 1 0));
  exists (corner R 1 0); (split; first exact: (corner_neq0 R 1 0));
  exists (fun=> dot (grad (halving R 2) 2)), (dot (grad (halving R 2) 2));
  (split; first by move=> z; exact: gradient_dot); (split; first exact: gradient_dot).
  by exists 2%N.
exists (fun _ l => grad (halving R 2) 2 *m (act (halving R 2) l.-1)^T); split=> [z l|]; first exact: outer.
exists (fun l => grad (halving R 2) 2 *m (act (halving R 2) l.-1)^T); split=> [l|l _]; first exact: outer.
by split=> [z|]; exact: (gradient_readout _ (gradient_dot _ _)).
Qed.
