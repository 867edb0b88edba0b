(** Witnesses of Statements/Noise.v: Jacobians that are the identity, linear losses; the activation
    doubles. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Products Noise.
From LAI Require Import Vectors Ghost Witness Witnesses.Instances Witnesses.Products.
From LAI Require Statements.Noise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Ltac take_two := exists 2%N; split=> //.

Lemma identity_gain (R : rcfType) k : gain_le (identity R k) 1.
Proof. by split=> [|v]; [exact: ler01|rewrite mul1mx mul1r]. Qed.

Lemma gain_products : ltac:(witness Statements.Noise.gain_products).
Proof.
split=> R; exists two; split=> //; exists (identity R); (split; first exact: identity_neq0); exists (fun=> 1);
  (split; first exact: identity_gain); take_two; exists 3%N; split=> //.
by exists 4%N.
Qed.

Lemma isotropic_gain : ltac:(witness Statements.Noise.isotropic_gain).
Proof. by move=> _; exists 3%N; split=> //; exists 2%N. Qed.

Lemma separating_operator : ltac:(witness Statements.Noise.separating_operator).
Proof.
move=> R; take_two; take_two.
exists (fun x => dot (corner R 1 0) (corner R 1 1 *m x)), (dot (corner R 1 0)), (mulmx (corner R 1 1)),
  (corner R 1 0).
split; first exact: corner_neq0; exists (corner R 1 1); split; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0; split=> //; split=> [e e0|]; last exact: gradient_dot.
by exists 1 => // h _; rewrite mulmxDr addrAC addrK subrr size1_0 mulr_ge0 ?size1_ge0 ?(ltW e0).
Qed.

Lemma vjp_recursion : ltac:(witness Statements.Noise.vjp_recursion).
Proof.
move=> R; take_two; take_two; pose phi := *%R 2%:R : R -> R.
exists (dot (corner R 1 0)), (fun x => dot (corner R 1 0) (corner R 1 1 *m map_mx phi x + corner R 1 0)), phi.
exists (corner R 1 1); split; first exact: corner_neq0.
do 2 (exists (corner R 1 0); split; first exact: corner_neq0).
exists (const_mx 2%:R); split.
  by apply/eqP => /matrixP /(_ 0 0); rewrite !mxE => /eqP; rewrite pnatr_eq0.
exists (corner R 1 0); split; first exact: corner_neq0; split=> [i e e0|]; last by split=> //;
  exact: gradient_dot.
by exists 1 => // h _; rewrite [const_mx _ _ _]mxE /phi mulrDr addrAC addrK subrr normr0 mulr_ge0 ?(ltW e0).
Qed.

Lemma expansion_bound : ltac:(witness Statements.Noise.expansion_bound).
Proof.
move=> R; exists two; split=> //; do 2 (exists (identity R); split; first exact: identity_neq0).
by exists (fun=> 1), (fun=> 1); split; exact: identity_gain.
Qed.
