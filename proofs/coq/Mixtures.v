(** Proofs of Statements/Mixtures.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Mixtures.
From LAI Require Import Vectors Ghost.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem hedge_step : Statements.Mixtures.hedge_step.
Proof.
move=> R ln K H eta pos K2 H0 eta0 bound.
have l0 := pos K K2; set l := ln K in l0 *.
have lH : 0 <= H * l by rewrite mulr_ge0 // ltW.
set s := Num.sqrt (H * l); have ss : s ^+ 2 = H * l by rewrite sqr_sqrtr.
have e0 : eta != 0 by rewrite gt_eqF.
split.
  rewrite /bound -/l -subr_ge0.
  have -> : l / eta + eta * H - 2%:R * s = ((eta * H - s) ^+ 2 + (H * l - s ^+ 2)) / (eta * H).
    by field; rewrite e0 gt_eqF.
  by rewrite ss subrr addr0 divr_ge0 ?sqr_ge0 // mulr_ge0 // ltW.
have s0 : s != 0 by rewrite gt_eqF // sqrtr_gt0 mulr_gt0.
have hE : Num.sqrt (l / H) = s / H.
  rewrite (_ : l / H = (s / H) ^+ 2); last by rewrite exprMn ss; field; rewrite gt_eqF.
  by rewrite sqrtr_sqr ger0_norm // divr_ge0 ?sqrtr_ge0 // ltW.
rewrite /bound -/l hE.
have -> : l = s ^+ 2 / H by rewrite ss; field; rewrite gt_eqF.
by field; rewrite s0 gt_eqF.
Qed.

Theorem decoupled : Statements.Mixtures.decoupled.
Proof.
move=> R I alpha beta last; set D := \sum_z _ => D0 w.
set B := \sum_z alpha z ^+ 2 * beta z * last z; set A := \sum_z alpha z ^+ 2 * beta z ^+ 2.
have form u : misfit alpha beta last u = A - 2%:R * u * B + u ^+ 2 * D.
  rewrite /misfit /A /B /D !mulr_sumr -sumrB -big_split; apply: eq_bigr => z _ /=; ring.
have sE : slope alpha beta last = B / D by [].
have gap : misfit alpha beta last w = misfit alpha beta last (slope alpha beta last) + D * (w - slope alpha beta last) ^+ 2.
  by rewrite !form sE; field.
split=> // ne; rewrite gap ltr_addl mulr_gt0 //.
  by rewrite lt_def D0 sumr_ge0 // => z _; rewrite mulr_ge0 ?sqr_ge0.
by rewrite lt_def sqr_ge0 sqrf_eq0 subr_eq0 ne.
Qed.

Section Sums.
Variables (R : realFieldType) (a b : nat).
Implicit Types f g : 'M[R]_(a, b) -> R.
Lemma gradient_const c x : gradient (fun _ : 'M[R]_(a, b) => c) x 0.
Proof.
move=> e e0; exists 1; first exact: ltr01.
by move=> D _; rewrite subrr dot0l subrr normr0 mulr_ge0 ?size1_ge0 // ltW.
Qed.
Lemma gradient_lin c f g x F G : gradient f x F -> gradient g x G ->
  gradient (fun y => c * f y + g y) x (c *: F + G).
Proof.
move=> hf hg e e0; set k := (`|c| + 1) * 2%:R.
have k0 : 0 < k by rewrite mulr_gt0 ?ltr0n // ltr_paddl ?ltr01.
have [|t t0 ht] := hf (e / k); first by rewrite divr_gt0.
have [|u u0 hu] := hg (e / 2%:R); first by rewrite divr_gt0 ?ltr0n.
exists (Num.min t u) => [|D]; first by rewrite lt_minr t0.
rewrite le_minr => /andP [/ht h1 /hu h2].
have dE : dot (c *: F + G) D = c * dot F D + dot G D by rewrite dotDl dotZl.
have -> : c * f (x + D) + g (x + D) - (c * f x + g x) - dot (c *: F + G) D
    = c * (f (x + D) - f x - dot F D) + (g (x + D) - g x - dot G D) by rewrite dE; ring.
apply: le_trans (ler_norm_add _ _) _; rewrite normrM.
rewrite [e in _ <= e * _](splitr e) mulrDl ler_add //.
apply: le_trans (ler_wpmul2l (normr_ge0 c) h1) _; rewrite mulrA ler_wpmul2r ?size1_ge0 //.
rewrite mulrA ler_pdivr_mulr // /k (_ : e / 2%:R * _ = e * (`|c| + 1)); last by field.
by rewrite mulrC ler_wpmul2l ?(ltW e0) // ler_addl ler01.
Qed.
Lemma eq_gradient f g x F : f =1 g -> gradient f x F -> gradient g x F.
Proof. by move=> fg h e e0; have [t t0 ht] := h e e0; exists t => // D /ht; rewrite !fg. Qed.
Lemma gradient_sum I (r : seq I) (c : I -> R) (f : I -> 'M_(a, b) -> R) F x : (forall i, gradient (f i) x (F i)) ->
  gradient (fun y => \sum_(i <- r) c i * f i y) x (\sum_(i <- r) c i *: F i).
Proof.
move=> h; elim: r => [|i r IH].
  by rewrite big_nil; apply: eq_gradient (gradient_const 0 x) => y; rewrite big_nil.
rewrite big_cons; apply: eq_gradient (gradient_lin (c i) (h i) IH) => y; by rewrite big_cons.
Qed.
End Sums.

Theorem sample_ownership : Statements.Mixtures.sample_ownership.
Proof.
move=> R n a b loss x dl w r rw i diff hr hw.
have -> : rw = \sum_k w k *: dl k by apply: gradient_unique hw _; apply: gradient_sum.
have -> : r = \sum_k dl k.
  apply: gradient_unique hr _; rewrite (eq_bigr (fun k => 1 *: dl k)) => [|k _]; last by rewrite scale1r.
  apply: eq_gradient (gradient_sum (index_enum _) (fun=> 1) diff) => y.
  by apply: eq_bigr => k _; rewrite mul1r.
rewrite scaler_sumr -sumrB (bigD1 i) //= subrr add0r; apply: eq_bigr => k _.
by rewrite scalerBl.
Qed.

Theorem share_derivative : Statements.Mixtures.share_derivative.
Proof.
move=> R p K size g L theta v eta D w step stepE sym diff.
pose G : 'M[R]_(p, K) := \matrix_(a, k) source_gradient g k a 0.
have mixE (u : 'cV_K) : \sum_k u k 0 *: source_gradient g k = G *m u.
  apply/matrixP => a b; rewrite (ord1 b) summxE mxE; apply: eq_bigr => k _.
  by rewrite !mxE mulrC.
have lin u : step u = theta + (- eta *: (D *m G)) *m u.
  by rewrite stepE mixE scaleNr mulNmx -scalemxAl mulmxA.
apply: (gradient_chain (phi := [linear of mulmx (- eta *: (D *m G))]) _ diff) => [u|u] /=.
  by rewrite !lin mulmxDr addrA.
rewrite -[RHS]dotC dot_mull dotC; congr (dot _ _); apply/matrixP => k b; rewrite (ord1 b) mxE.
rewrite linearZ /= -scalemxAl mxE trmx_mul sym -mulmxA; congr (_ * _).
rewrite /mean_score mxE.
have -> : \sum_a G^T k a * (D *m v) a 0 = dot (source_gradient g k) (D *m v).
  by apply: eq_bigr => a _; rewrite big_ord1 !mxE.
by rewrite /source_gradient dotZl dot_suml mulrC.
Qed.
