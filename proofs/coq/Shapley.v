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

Section MidpointError.
Variables (R : rcfType) (p n : nat) (L : 'cV[R]_p -> R) (dL : 'cV[R]_p -> 'cV[R]_p) (H : 'cV[R]_p -> 'M[R]_p).
Variables (mu eta : R).
Hypothesis arch : Num.archimedean_axiom R.
Hypothesis diff : hessian_of L dL H.
Hypothesis smooth : forall x y (h : 'cV_p), norm ((H x - H y) *m h) <= mu * norm (x - y) * norm h.
Hypothesis eta0 : 0 < eta.

Lemma gradient_le m d v : `|dot (dL (m + d)) v - dot (dL m) v - dot (H m *m d) v|
  <= mu * norm d ^+ 2 * norm v / 2%:R.
Proof.
have der : slope (fun s => dot (dL (m + s *: d)) v) (fun s => dot (H (m + s *: d) *m d) v).
  apply: (slope_along (F := fun x => dot (dL x) v) (dF := fun x h => dot (H x *m h) v)) => [r e e0|x a].
    have v1 : 0 < norm v + 1 by rewrite ltr_spaddr ?norm_ge0 ?ltr01.
    have [|t t0 ht] := diff r (e := e / (norm v + 1)); first by rewrite divr_gt0.
    exists t => // x h xr hs; rewrite -!dotBl; apply: le_trans (cauchy_schwarz _ _) _.
    have [_ small] := ht x h xr hs; apply: le_trans (ler_wpmul2r (norm_ge0 _) small) _.
    have -> : e / (norm v + 1) * norm h * norm v = e * norm h * (norm v / (norm v + 1)) by ring.
    by rewrite ler_pimulr ?mulr_ge0 ?norm_ge0 ?(ltW e0) // ler_pdivr_mulr // mul1r ler_addl ler01.
  by rewrite -scalemxAr dotZl.
have := mean arch (u := dot (H m *m d) v) (v := 0) (a := 0) (b := mu * norm d ^+ 2 * norm v) der (lexx 0).
rewrite scale1r scale0r addr0 !mul0r !addr0 add0r; apply=> s /andP [s0 _].
rewrite !mul0r !addr0 add0r -dotBl -mulmxBl; apply: le_trans (cauchy_schwarz _ _) _.
have -> : mu * norm d ^+ 2 * norm v * s = mu * (s * norm d) * norm d * norm v by ring.
apply: ler_wpmul2r; first exact: norm_ge0.
by apply: le_trans (smooth _ _ _) _; rewrite addrAC subrr add0r normZ ger0_norm.
Qed.

(* One order: x is where v's step begins, W what is before v less half of the others. *)
Lemma step_le m W v x : x = m - eta *: (W - 2%:R^-1 *: v) ->
  `|L x - L (x - eta *: v) - eta * dot v (dL m) + eta ^+ 2 * dot (H m *m W) v|
  <= mu * eta ^+ 3 / 2%:R * norm v * (dot W W + norm v ^+ 2 / 12%:R).
Proof.
move=> xE; have [v0|v0] := eqVneq v 0.
  by rewrite v0 scaler0 subr0 subrr dot0l dot0r norm0 !mulr0 mul0r addr0 subr0 normr0.
have n0 : 0 < norm v by rewrite lt_def norm_eq0 v0 norm_ge0.
have mu0 : 0 <= mu.
  by have := le_trans (norm_ge0 _) (smooth v 0 v); rewrite subr0 -mulrA pmulr_lge0 // mulr_gt0.
have der : slope (fun s => L (x + s *: - (eta *: v)))
  (fun s => dot (dL (x + s *: - (eta *: v))) (- (eta *: v))).
  apply: (slope_along (F := L) (dF := fun x h => dot (dL x) h)) => [r e /(diff r) [t t0 ht]|y a];
    last exact: dotZr.
  by exists t => // y h yr hs; have [] := ht y h yr hs.
set k := mu * eta ^+ 3 / 2%:R * norm v.
have k0 : 0 <= k by rewrite /k !mulr_ge0 ?invr_ge0 ?ler0n ?exprn_ge0 ?norm_ge0 // ltW.
have sq : norm v ^+ 2 = dot v v by exact: norm_sqr.
have := mean arch (u := - eta * dot (dL m) v + eta ^+ 2 * (dot (H m *m W) v - dot (H m *m v) v / 2%:R))
  (v := eta ^+ 2 * dot (H m *m v) v) (a := k * (dot W W - dot W v + dot v v / 4%:R))
  (b := k * (2%:R * dot W v - dot v v)) (c := k * dot v v) der (mulr_ge0 k0 (dot_ge0 v)).
rewrite scale1r scale0r addr0 -normrN sq (dotC v (dL m)); set l := L _; set l' := L _.
have algebra (a b c : R) : - (l - l' - (- eta * a + eta ^+ 2 * (b - c / 2%:R) + eta ^+ 2 * c / 2%:R))
  = l' - l - eta * a + eta ^+ 2 * b by field.
rewrite algebra; have -> (a b c : R) : k * (a - b + c / 4%:R) + k * (2%:R * b - c) / 2%:R + k * c / 3%:R
  = k * (a + c / 12%:R).
  by field.
apply=> s _; set d := - eta *: (W + (s - 2%:R^-1) *: v).
have -> : x + s *: - (eta *: v) = m + d.
  by rewrite xE /d; apply/matrixP => r q; rewrite !mxE; field.
have square (a b c : R) :
  - eta * (- eta * (a + (s - 2%:R^-1) * b + ((s - 2%:R^-1) * b + (s - 2%:R^-1) * ((s - 2%:R^-1) * c))))
    = eta ^+ 2 * (a - b + c / 4%:R + (2%:R * b - c) * s + c * s ^+ 2) by field.
have := gradient_le m d v; have ->
  : norm d ^+ 2 = eta ^+ 2 * (dot W W - dot W v + dot v v / 4%:R + (2%:R * dot W v - dot v v) * s
  + dot v v * s ^+ 2).
  by rewrite norm_sqr /d !dotZl !dotZr !dotDl !dotDr !dotZl !dotZr (dotC v W); exact: square.
have -> : dot (H m *m d) v = - eta * (dot (H m *m W) v + (s - 2%:R^-1) * dot (H m *m v) v).
  by rewrite /d -scalemxAr mulmxDr -scalemxAr dotZl dotDl dotZl.
rewrite -(ler_pmul2l eta0) -{1}(gtr0_norm eta0) -normrM -normrN dotNr dotZr.
have left (a b c e : R) : - (eta * (a - b - - eta * (c + (s - 2%:R^-1) * e)))
    = - (eta * a) - (- eta * b + eta ^+ 2 * (c - e / 2%:R) + eta ^+ 2 * e * s) by field.
have right (a b c : R) :
  eta * (mu * (eta ^+ 2 * (a - b + c / 4%:R + (2%:R * b - c) * s + c * s ^+ 2)) * norm v / 2%:R)
    = k * (a - b + c / 4%:R) + k * (2%:R * b - c) * s + k * c * s ^+ 2 by rewrite /k; field.
by rewrite left right.
Qed.
End MidpointError.

Theorem midpoint_error : Statements.Shapley.midpoint_error.
Proof.
move=> R p n L dL H theta g mu eta j arch diff smooth eta0; cbv zeta; set G := \sum_i g i.
have f0 : 0 < n`!%:R :> R by rewrite ltr0n fact_gt0.
set m := theta - _; set v := dot _ _; set K := \sum_(i | i != j) norm (g i) ^+ 2.
have GE : G = \sum_(i | i != j) g i + g j by rewrite /G (bigD1 j) //= addrC.
set G' := \sum_(i | i != j) g i in GE.
have GG : G - g j = G' by rewrite GE addrK.
pose U (s : 'S_n) := \sum_(i | (s i < s j)%N) g i; pose W s := U s - 2%:R^-1 *: G'.
have KE : K = \sum_(i | i != j) dot (g i) (g i) by apply: eq_bigr => i _; exact: norm_sqr.
have sumU : \sum_s U s = (n`!%:R / 2%:R) *: G'.
  have := sum_before g j; rewrite -/G GG => /(congr1 ( *:%R 2%:R^-1)).
  by rewrite !scalerA mulVf ?pnatr_eq0 // scale1r mulrC.
have sumW : \sum_s W s = 0.
  rewrite sumrB sumU sumr_const (eq_card (B := [set: 'S_n])) => [|s]; last by rewrite !inE.
  by rewrite cardsT card_Sn -scaler_nat scalerA subrr.
have sumWW : \sum_s dot (W s) (W s) = n`!%:R * (K / 6%:R + dot G' G' / 12%:R).
  have -> : \sum_s dot (W s) (W s) = \sum_s dot (U s) (U s) - dot (\sum_s U s) G'
    + n`!%:R * (dot G' G' / 4%:R).
    have algebra (a b c : R) : a - 2%:R^-1 * b - (2%:R^-1 * b - 2%:R^-1 * (2%:R^-1 * c)) = a - b + c / 4%:R
      by field.
    rewrite dot_suml -sum_orders -sumrB -big_split; apply: eq_bigr => s _ /=.
    by rewrite /W dotBl !dotBr !dotZl !dotZr (dotC G' (U s)); exact: algebra.
  have six : 6%:R != 0 :> R by rewrite pnatr_eq0.
  have algebra (A N a b : R) : 6%:R * A = N * (a + 2%:R * b) ->
      A - N / 2%:R * b + N * (b / 4%:R) = N * (a / 6%:R + b / 12%:R).
    by move=> E; have -> : A = N * (a + 2%:R * b) / 6%:R; [rewrite -E mulrC mulKf | field].
  by rewrite sumU dotZl; apply: algebra; rewrite KE; exact: sum_before_sqr.
pose M (s : 'S_n) := L (before eta theta g s j) - L (before eta theta g s j - eta *: g j).
have each s : `|M s - eta * v + eta ^+ 2 * dot (H m *m W s) (g j)|
  <= mu * eta ^+ 3 / 2%:R * norm (g j) * (dot (W s) (W s) + norm (g j) ^+ 2 / 12%:R).
  apply: (step_le arch diff smooth eta0); rewrite /before -/(U s) /m /W GE.
  have algebra (a b c e : R) : a - eta * b = a - eta / 2%:R * (c + e) - eta * (b - 2%:R^-1 * c - 2%:R^-1 * e)
    by field.
  by apply/matrixP => r q; rewrite !mxE; exact: algebra.
apply/andP; split.
  have -> : shapley L eta theta g j / eta - v
      = (\sum_s (M s - eta * v + eta ^+ 2 * dot (H m *m W s) (g j))) / (n`!%:R * eta).
    have flat : \sum_s dot (H m *m W s) (g j) = 0 by rewrite -dot_suml -mulmx_sumr sumW mulmx0 dot0l.
    rewrite [in RHS]big_split /= sumrB sum_orders -mulr_sumr flat mulr0 addr0.
    have algebra (S N : R) : N != 0 -> S / N / eta - v = (S - N * (eta * v)) / (N * eta).
      by move=> N0; field; rewrite N0 gt_eqF.
    by apply: algebra; rewrite gt_eqF.
  rewrite normrM normfV (gtr0_norm (mulr_gt0 f0 eta0)) ler_pdivr_mulr ?mulr_gt0 //.
  apply: le_trans (ler_norm_sum _ _ _) _; apply: le_trans (ler_sum _ (fun s _ => each s)) _.
  rewrite -mulr_sumr big_split /= sum_orders sumWW GG (norm_sqr G').
  have algebra (N a b c e : R) : mu * eta ^+ 3 / 2%:R * a * (N * (b / 6%:R + c / 12%:R) + N * (e / 12%:R))
      = mu * eta ^+ 2 / 2%:R * a * (b / 6%:R + c / 12%:R + e / 12%:R) * (N * eta) by field.
  by rewrite algebra.
set a := norm (g j); set T := \sum_(i | i != j) norm (g i).
have T0 : 0 <= T by apply: sumr_ge0 => i _; exact: norm_ge0.
have a0 : 0 <= a by exact: norm_ge0.
have KT : K <= T ^+ 2.
  rewrite expr2 {1}/T mulr_suml; apply: ler_sum => i ij; rewrite expr2 ler_wpmul2l ?norm_ge0 //.
  by rewrite /T (bigD1 i) //= ler_addl sumr_ge0 // => k _; exact: norm_ge0.
have GT : norm G' ^+ 2 <= T ^+ 2 by rewrite ler_pexpn2r ?nnegrE ?norm_ge0 // norm_sum.
have -> : \sum_i norm (g i) = T + a by rewrite (bigD1 j) //= addrC.
have [a00|an0] := eqVneq a 0; first by rewrite a00 !mulr0 !mul0r.
have mu0 : 0 <= mu.
  have := le_trans (norm_ge0 _) (smooth (g j) 0 (g j)); rewrite subr0 -mulrA pmulr_lge0 //.
  by rewrite -/a mulr_gt0 // lt_def an0.
rewrite GG -subr_ge0; set b := norm G' ^+ 2 in GT *.
have -> : mu * eta ^+ 2 / 8%:R * a * (T + a) ^+ 2 - mu * eta ^+ 2 / 2%:R * a *
  (K / 6%:R + b / 12%:R + a ^+ 2 / 12%:R)
    = mu * eta ^+ 2 * a * ((T ^+ 2 - K) / 12%:R + (T ^+ 2 - b) / 24%:R + T * a / 4%:R + a ^+ 2 / 12%:R)
      by field.
apply: mulr_ge0; first by apply: mulr_ge0 => //; apply: mulr_ge0 => //; exact: sqr_ge0.
by do 3?apply: addr_ge0; apply: divr_ge0; rewrite ?subr_ge0 ?ler0n ?sqr_ge0 // mulr_ge0.
Qed.
