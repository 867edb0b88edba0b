(** Witnesses of Statements/Descent.v: a linear loss, whose gradient is the first unit vector. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Descent.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Descent.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Linear.
Variables (R : rcfType) (p : nat).
Implicit Types x y : 'cV[R]_p.+1.
Lemma linear_gradient : gradient_of (dot (corner R p 0)) (fun=> corner R p 0).
Proof.
by move=> e e0; exists 1 => // x h _; rewrite dotDr addrAC addrK subrr normr0 mulr_ge0 ?norm_ge0 ?(ltW e0).
Qed.
Lemma linear_lipschitz : lipschitz (fun _ : 'cV[R]_p.+1 => corner R p 0) 1.
Proof. by move=> x y; rewrite subrr norm0 mul1r norm_ge0. Qed.
End Linear.

Lemma descent_meaning : ltac:(witness Statements.Descent.descent_meaning).
Proof.
split=> R; exists 2%N; split=> //; exists (dot (corner R 1 0)), (fun=> corner R 1 0), (corner R 1 0);
  (split; first exact: corner_neq0).
  exists (corner R 1 0); split; first exact: corner_neq0.
  exists 1, 1 => _; split; first exact: linear_gradient; split; first exact: linear_lipschitz.
  by rewrite ler01 ltr01 corner_norm corner_dot expr1n !mulr1 ltr1n.
exists (- corner R 1 0); split; first by rewrite oppr_eq0 corner_neq0.
exists 1, 1 => _; split; first exact: linear_gradient; split; first exact: linear_lipschitz.
by rewrite ler01 ltr01 normN corner_norm dotNr corner_dot expr1n mulrN opprK !mulr1 ltr1n.
Qed.
