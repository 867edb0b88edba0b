(** Proofs of Statements/Shapley.v. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks Descent Shapley.
From LAI Require Import Vectors Descent Orders.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Quadratic.
Variables (R : realFieldType) (p : nat) (H : 'M[R]_p) (b : 'cV[R]_p).
Hypothesis sym : H^T = H.

Lemma quadratic_step x d : quadratic H b x - quadratic H b (x - d) = dot d (H *m x + b)
  - dot d (H *m d) / 2%:R.
Proof.
rewrite /quadratic mulmxBr !dotBl !dotBr dotDr.
have -> : dot x (H *m d) = dot d (H *m x) by rewrite dotC dot_mull sym.
rewrite (dotC b d).
have algebra (a c e f h : R) : a / 2%:R + c - ((a - e - (e - f)) / 2%:R + (c - h)) = e + h - f / 2%:R
  by field.
exact: algebra.
Qed.
End Quadratic.

Theorem midpoint : Statements.Shapley.midpoint.
Proof.
move=> R p n H b theta g eta j sym eta0; rewrite /shapley.
have f0 : n`!%:R != 0 :> R by rewrite pnatr_eq0 -lt0n fact_gt0.
set U := fun s : 'S_n => \sum_(i | (s i < s j)%N) g i.
have sumU : 2%:R *: (\sum_s U s) = n`!%:R *: (\sum_i g i - g j) := sum_before g j.
have each s : quadratic H b (before eta theta g s j) - quadratic H b (before eta theta g s j - eta *: g j)
    = eta * dot (g j) (H *m theta + b) - eta ^+ 2 * dot (g j) (H *m U s)
      - eta ^+ 2 * dot (g j) (H *m g j) / 2%:R.
  rewrite quadratic_step // /before -/(U s) mulmxBr -!scalemxAr !dotZl !dotDr dotNr !dotZr.
  have algebra (a c e f : R) : eta * (a - eta * c + e) - eta * (eta * f) / 2%:R
      = eta * (a + e) - eta ^+ 2 * c - eta ^+ 2 * f / 2%:R by field.
  exact: algebra.
have sumH : \sum_s dot (g j) (H *m U s)
  = n`!%:R / 2%:R * (dot (g j) (H *m \sum_i g i) - dot (g j) (H *m g j)).
  rewrite -dot_sumr -mulmx_sumr; have -> : \sum_s U s = (n`!%:R / 2%:R) *: (\sum_i g i - g j).
    by rewrite mulrC -scalerA -sumU scalerA mulVf ?scale1r // pnatr_eq0.
  by rewrite -scalemxAr dotZr mulmxBr dotBr.
rewrite (eq_bigr _ (fun s _ => each s)) !sumrB !sum_orders -mulr_sumr sumH mulmxBr -scalemxAr !dotDr dotNr
  dotZr.
have algebra (N a e c f : R) : N != 0 ->
    (N * (eta * (a + e)) - eta ^+ 2 * (N / 2%:R * (c - f)) - N * (eta ^+ 2 * f / 2%:R)) / N / eta
    = a - eta / 2%:R * c + e by move=> N0; field; rewrite N0 eta0.
exact: algebra.
Qed.

Theorem step_midpoint : Statements.Shapley.step_midpoint.
Proof.
move=> R p n H b g j sym; have m1 : (-1 : R) != 0 by rewrite oppr_eq0 oner_eq0.
rewrite -[LHS](divfK m1) mulrN1 (midpoint _ _ _ _ sym m1); congr (- dot _ (_ *m _ + _)).
by rewrite add0r mulN1r scaleNr opprK.
Qed.

Section FirstOrder.
Variables (R : rcfType) (p n : nat) (L : 'cV[R]_p -> R) (dL : 'cV[R]_p -> 'cV[R]_p) (theta : 'cV[R]_p).
Variables (g : 'I_n -> 'cV[R]_p) (lambda eta : R) (j : 'I_n).
Hypothesis arch : Num.archimedean_axiom R.
Hypothesis diff : gradient_of L dL.
Hypothesis smooth : lipschitz dL lambda.
Hypothesis eta0 : 0 < eta.

(* A negative constant leaves no vector but 0. *)
Lemma constant_ge0 : 0 <= lambda \/ forall v : 'cV[R]_p, v = 0.
Proof.
have [l0|l0] := lerP 0 lambda; [by left | right=> v].
apply/eqP; rewrite -norm_eq0 eq_le norm_ge0 andbT -(nmulr_rge0 _ l0).
by have := le_trans (norm_ge0 _) (smooth v 0); rewrite subr0.
Qed.

(* One order: what j's step takes off the loss, against the score. *)
Lemma order_le (s : 'S_n) :
  `|L (before eta theta g s j) - L (before eta theta g s j - eta *: g j) - eta * dot (dL theta) (g j)|
  <= lambda * eta ^+ 2 * norm (g j) * (norm (g j) / 2%:R + \sum_(i | (s i < s j)%N) norm (g i)).
Proof.
have [l0|none] := constant_ge0; last first.
  rewrite /before !big1 => [|i _|i _]; rewrite ?(none (g i)) ?norm0 // (none (g j)) !scaler0 !subr0.
  by rewrite subrr dot0r mulr0 subr0 normr0 norm0 mulr0 mul0r.
set x := before _ _ _ _ _; set S := \sum_(i | _) norm _.
have one : `|L (x - eta *: g j) - L x + eta * dot (dL x) (g j)| <= lambda * eta ^+ 2 * norm (g j) ^+ 2 / 2%:R.
  have := remainder_le arch x (- (eta *: g j)) diff smooth.
  by rewrite normN normZ dotNr dotZr opprK (gtr0_norm eta0) exprMn mulrA.
have moved : norm (dL x - dL theta) <= lambda * (eta * S).
  apply: le_trans (smooth _ _) _; apply: ler_wpmul2l => //.
  by rewrite /x /before addrAC subrr add0r normN normZ (gtr0_norm eta0) ler_pmul2l // norm_sum.
have split (a b c e : R) : a - b - eta * e = - (b - a + eta * c) + eta * (c - e) by ring.
rewrite (split _ _ (dot (dL x) (g j))); have <- : dot (dL x - dL theta) (g j) = dot (dL x) (g j)
  - dot (dL theta) (g j).
  exact: dotBl.
apply: le_trans (ler_norm_add _ _) _; rewrite normrN normrM (gtr0_norm eta0).
have -> : lambda * eta ^+ 2 * norm (g j) * (norm (g j) / 2%:R + S)
        = lambda * eta ^+ 2 * norm (g j) ^+ 2 / 2%:R + eta * (lambda * (eta * S) * norm (g j)) by field.
apply: ler_add => //; rewrite ler_pmul2l //.
by apply: le_trans (cauchy_schwarz _ _) _; apply: ler_wpmul2r; rewrite ?norm_ge0.
Qed.
End FirstOrder.

Theorem first_order : Statements.Shapley.first_order.
Proof.
move=> R p n L dL theta g lambda eta j arch diff smooth eta0.
have f0 : 0 < n`!%:R :> R by rewrite ltr0n fact_gt0.
pose M (s : 'S_n) := L (before eta theta g s j) - L (before eta theta g s j - eta *: g j).
set v := dot _ _; set G := \sum_i norm (g i).
have sumS : \sum_(s : 'S_n) \sum_(i | (s i < s j)%N) norm (g i) = n`!%:R / 2%:R * (G - norm (g j)).
  under eq_bigr do rewrite big_mkcond.
  rewrite exchange_big /G [in RHS](bigD1 j) //= addrAC subrr add0r mulr_sumr (bigD1 j) //=.
  rewrite big1 ?add0r => [|s _]; last by rewrite ltnn.
  apply: eq_bigr => i ne; have := half_of_orders R ne; set C := \sum_s _ => <-.
  have -> : 2%:R * C / 2%:R * norm (g i) = C * norm (g i) by field.
  rewrite /C mulr_suml.
  by apply: eq_bigr => s _; case: ifP; rewrite ?mul1r ?mul0r.
have -> : shapley L eta theta g j / eta - v = (\sum_s (M s - eta * v)) / (n`!%:R * eta).
  rewrite [in RHS]sumrB sum_orders -[shapley _ _ _ _ _]/((\sum_s M s) / n`!%:R); field.
  by rewrite !gt_eqF.
rewrite normrM normfV (gtr0_norm (mulr_gt0 f0 eta0)) ler_pdivr_mulr ?mulr_gt0 //.
apply: le_trans (ler_norm_sum _ _ _) _.
pose B (s : 'S_n) := lambda * eta ^+ 2 * norm (g j) *
  (norm (g j) / 2%:R + \sum_(i | (s i < s j)%N) norm (g i)).
apply: (@le_trans _ _ (\sum_s B s)); first by apply: ler_sum => s _; exact: order_le.
rewrite -mulr_sumr big_split /= sum_orders sumS -subr_ge0.
set N := n`!%:R; set a := norm _.
have -> : lambda * eta / 2%:R * a * G * (N * eta) - lambda * eta ^+ 2 * a *
  (N * (a / 2%:R) + N / 2%:R * (G - a)) = 0.
  by field.
exact: lexx.
Qed.
