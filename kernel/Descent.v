(** Proofs of Statements/Descent.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Descent.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma natr1 (R : ringType) k : k%:R + 1 = k.+1%:R :> R.
Proof. by rewrite -addn1 natrD. Qed.

Section Remainder.
Variables (R : rcfType) (p : nat) (L : 'cV[R]_p -> R) (dL : 'cV[R]_p -> 'cV[R]_p) (theta : 'cV[R]_p) (lambda : R).
Hypothesis arch : Num.archimedean_axiom R.
Hypothesis diff : gradient_of L dL.
Hypothesis smooth : lipschitz dL lambda.

(* k steps of h: each is off by e |h| from its slope, which has moved by at most lambda k |h|. *)
Lemma steps e t h : (forall x h, norm h <= t -> `|L (x + h) - L x - dot (dL x) h| <= e * norm h) -> norm h <= t ->
  forall k, `|L (theta + k%:R *: h) - L theta - k%:R * dot (dL theta) h|
            <= \sum_(i < k) (e * norm h + lambda * norm h ^+ 2 * i%:R).
Proof.
move=> ht small; elim=> [|k IH].
  by rewrite big_ord0 scale0r addr0 subrr mul0r subr0 normr0.
rewrite big_ord_recr /=; set x := theta + k%:R *: h.
have -> : theta + k.+1%:R *: h = x + h by rewrite /x -addrA -natr1 scalerDl scale1r.
have -> : L (x + h) - L theta - k.+1%:R * dot (dL theta) h
        = (L x - L theta - k%:R * dot (dL theta) h) + ((L (x + h) - L x - dot (dL x) h) + dot (dL x - dL theta) h).
  have -> : dot (dL x - dL theta) h = dot (dL x) h - dot (dL theta) h by exact: dotBl.
  by rewrite -natr1; ring.
apply: le_trans (ler_norm_add _ _) _; apply: ler_add => //.
apply: le_trans (ler_norm_add _ _) _; apply: ler_add; first exact: ht.
apply: le_trans (cauchy_schwarz _ _) _.
apply: (@le_trans _ _ (lambda * norm (x - theta) * norm h)); first by apply: ler_wpmul2r; rewrite ?norm_ge0.
rewrite /x addrAC subrr add0r normZ ger0_norm ?ler0n //.
by have -> : lambda * (k%:R * norm h) * norm h = lambda * norm h ^+ 2 * k%:R by ring.
Qed.

Lemma sum_steps k : 2%:R * (\sum_(i < k.+1) i%:R) <= k.+1%:R ^+ 2 :> R.
Proof.
have -> : 2%:R * (\sum_(i < k.+1) i%:R) = k.+1%:R * k%:R :> R.
  elim: k => [|k IH]; first by rewrite big_ord_recr big_ord0 /= add0r !mulr0.
  by rewrite big_ord_recr /= mulrDr IH -!natr1; ring.
by rewrite expr2 ler_pmul2l ?ltr0Sn // ler_nat.
Qed.

Lemma remainder_le d : `|L (theta + d) - L theta - dot (dL theta) d| <= lambda * norm d ^+ 2 / 2%:R.
Proof.
have [->|d0] := eqVneq d 0.
  by rewrite addr0 subrr dot0r subr0 normr0 norm0 expr0n /= mulr0 mul0r.
have n0 : 0 < norm d by rewrite lt_def norm_eq0 d0 norm_ge0.
have l0 : 0 <= lambda.
  have := le_trans (norm_ge0 _) (smooth (theta + d) theta).
  by rewrite addrAC subrr add0r pmulr_lge0.
apply/ler_addgt0Pr => e e0; have [|t t0 ht] := diff (e := e / norm d); first by rewrite divr_gt0.
have [N hN] := arch (norm d / t).
have hd : d = N.+1%:R *: (N.+1%:R^-1 *: d) by rewrite scalerA divff ?scale1r // pnatr_eq0.
set h := N.+1%:R^-1 *: d in hd.
have nh : norm h = norm d / N.+1%:R by rewrite normZ ger0_norm ?invr_ge0 ?ler0n // mulrC.
have small : norm h <= t.
  rewrite nh ler_pdivr_mulr ?ltr0Sn // mulrC -ler_pdivr_mulr //; apply: le_trans (ltW _) (_ : N%:R <= _).
    by apply: le_lt_trans hN; apply: ler_norm.
  by rewrite ler_nat.
rewrite {1}hd {1}hd dotZr; apply: le_trans (steps ht small N.+1) _.
rewrite big_split /= sumr_const card_ord -mulr_sumr addrC; apply: ler_add.
  rewrite nh expr_div_n -subr_ge0; have := sum_steps N; set S := \sum_(i < N.+1) i%:R => hS.
  have common (q a b c : R) : q != 0 ->
      a * b / 2%:R - a * (b / q ^+ 2) * c = a * b / (2%:R * q ^+ 2) * (q ^+ 2 - 2%:R * c).
    by move=> q0; field.
  rewrite common ?pnatr_eq0 //.
  apply: mulr_ge0; last by rewrite subr_ge0.
  by apply: divr_ge0; apply: mulr_ge0; rewrite ?sqr_ge0 ?ler0n.
have whole (q a b : R) : q != 0 -> b != 0 -> a / b * (b / q) * q = a by move=> q0 b0; field; rewrite q0.
by rewrite -mulr_natr nh whole ?pnatr_eq0 // gt_eqF.
Qed.
End Remainder.

Theorem descent_meaning : Statements.Descent.descent_meaning.
Proof.
move=> R p L dL theta g lambda eta arch diff smooth eta0 v change.
have bound : `|change + eta * v| <= lambda * eta ^+ 2 * norm g ^+ 2 / 2%:R.
  have := remainder_le theta arch diff smooth (- (eta *: g)).
  rewrite dotNr dotZr opprK normN normZ exprMn real_normK ?num_real // [lambda * (_ * _)]mulrA.
  by [].
split=> // eta1 small; move: bound; rewrite ler_norml => /andP [low high].
  rewrite -(ltr_add2r (eta * v)) add0r; apply: le_lt_trans high _.
  rewrite ltr_pdivr_mulr ?ltr0n // -subr_gt0.
  have -> : eta * v * 2%:R - lambda * eta ^+ 2 * norm g ^+ 2 = eta * (2%:R * v - lambda * norm g ^+ 2 * eta) by ring.
  by rewrite mulr_gt0 // subr_gt0.
rewrite -(ltr_add2r (eta * v)) add0r; apply: lt_le_trans low.
rewrite -subr_gt0.
have -> : - (lambda * eta ^+ 2 * norm g ^+ 2 / 2%:R) - eta * v
        = eta / 2%:R * (- (2%:R * v) - lambda * norm g ^+ 2 * eta) by field.
by rewrite mulr_gt0 ?divr_gt0 ?ltr0n // subr_gt0.
Qed.
