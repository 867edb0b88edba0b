(** Proofs of Statements/Mixtures.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Mixtures.
From LAI Require Import Vectors Ghost.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem hedge_step : Statements.Mixtures.hedge_step.
Proof.
move=> R l H eta l0 H0 eta0 bound.
have lH : 0 <= H * l by rewrite mulr_ge0 // ltW.
set s := Num.sqrt (H * l); have ss : s ^+ 2 = H * l by rewrite sqr_sqrtr.
have e0 : eta != 0 by rewrite gt_eqF.
split.
  rewrite /bound -subr_ge0.
  have -> : l / eta + eta * H - 2%:R * s = ((eta * H - s) ^+ 2 + (H * l - s ^+ 2)) / (eta * H).
    by field; rewrite e0 gt_eqF.
  by rewrite ss subrr addr0 divr_ge0 ?sqr_ge0 // mulr_ge0 // ltW.
have s0 : s != 0 by rewrite gt_eqF // sqrtr_gt0 mulr_gt0.
have hE : Num.sqrt (l / H) = s / H.
  rewrite (_ : l / H = (s / H) ^+ 2); last by rewrite exprMn ss; field; rewrite gt_eqF.
  by rewrite sqrtr_sqr ger0_norm // divr_ge0 ?sqrtr_ge0 // ltW.
rewrite /bound hE.
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
have gap : misfit alpha beta last w = misfit alpha beta last (slope alpha beta last)
  + D * (w - slope alpha beta last) ^+ 2.
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
Lemma gradient_sum I (r : seq I) (c : I -> R) (f : I -> 'M_(a, b) -> R) F x :
  (forall i, gradient (f i) x (F i)) ->
  gradient (fun y => \sum_(i <- r) c i * f i y) x (\sum_(i <- r) c i *: F i).
Proof.
move=> h; elim: r => [|i r IH].
  by rewrite big_nil; apply: eq_gradient (gradient_const 0 x) => y; rewrite big_nil.
rewrite big_cons; apply: eq_gradient (gradient_lin (c i) (h i) IH) => y; by rewrite big_cons.
Qed.
End Sums.

Section Ownership.
Variables (R : realFieldType) (n a b : nat) (D : 'I_n -> 'M[R]_(a, b)) (i : 'I_n).
Local Notation O := (others D i).
(* What is left, as the product of the weights with a matrix of the others' rank. *)
Definition kept : 'M_(n, a * b) := (1%:M - delta_mx i (0 : 'I_1) *m const_mx 1) *m O.
Definition residue (w : 'rV[R]_n) := \sum_(k | k != i) (w 0 k - w 0 i) *: D k.
Lemma residueE w : mxvec (residue w) = w *m kept.
Proof.
have rows (u : 'rV_n) : u *m O = \sum_(k | k != i) u 0 k *: mxvec (D k).
  rewrite mulmx_sum_row (bigD1 i) //= rowK eqxx scaler0 add0r; apply: eq_bigr => k /negPf ki.
  by rewrite rowK ki.
rewrite /kept mulmxA mulmxBr mulmx1 mulmxA rows linear_sum; apply: eq_bigr => k _ /=.
rewrite linearZ /=; congr (_ *: _); rewrite 2!mxE; congr (_ - _).
rewrite mxE big_ord1 [const_mx _ _ _]mxE mulr1.
by rewrite mxE (bigD1 i) //= mxE !eqxx mulr1 big1 ?addr0 // => l /negPf li; rewrite mxE li mulr0.
Qed.
Lemma rank_kept : \rank kept = \rank O.
Proof.
apply/eqP; rewrite eqn_leq mxrankM_maxr /=.
have {1}-> : O = (1%:M - delta_mx i i) *m kept.
  have idem : delta_mx i i *m O = 0.
    apply/matrixP => k l; rewrite mxE [RHS]mxE big1 // => m _.
    by rewrite mxE [others _ _ _ _]mxE; case: (m == i); rewrite ?andbF ?mul0r // mxE mulr0.
  rewrite /kept mulmxA mulmxBr mulmx1 mulmxA [(_ - _) *m delta_mx _ _]mulmxBl mul1mx mul_delta_mx subrr.
  rewrite mul0mx subr0.
  by rewrite mulmxBl mul1mx idem subr0.
exact: mxrankM_maxr.
Qed.
Lemma residue_eq0 w : (residue w == 0) = (w <= kermx kept)%MS.
Proof. by rewrite sub_kermx -residueE mxvec_eq0. Qed.
Lemma residue_inj k w w' : k != i -> D k != 0 -> residue w = 0 -> residue w' = 0 ->
  (forall l, l != k -> w 0 l = w' 0 l) -> w = w'.
Proof.
move=> ki Dk h h' same; have ik : i != k by rewrite eq_sym.
apply/rowP => l; have [->|/same //] := eqVneq l k.
have /eqP : residue w - residue w' = 0 by rewrite h h' subrr.
rewrite /residue -sumrB (bigD1 k) //= big1 ?addr0 => [|m /andP [_ mk]]; last first.
  by rewrite (same m mk) (same i ik) subrr.
rewrite -scalerBl (same i ik) opprB addrA subrK.
by rewrite scaler_eq0 (negPf Dk) orbF subr_eq0 => /eqP.
Qed.
Lemma residue_grid k (S : finType) (value : S -> R) : k != i -> D k != 0 -> injective value ->
  (#|[set c | residue (chosen value c) == 0%R]| * #|S| <= #|S| ^ n)%N.
Proof.
move=> ki Dk inj; set bad := [set _ | _].
pose move (p : {ffun 'I_n -> S} * S) := [ffun l => if l == k then p.2 else p.1 l].
have inj_move : {in setX bad setT &, injective move}.
  move=> [c s] [c' s'] /=; rewrite !inE !andbT => /eqP hc /eqP hc' /ffunP same.
  have -> : s = s' by have := same k; rewrite !ffunE eqxx.
  have off l : l != k -> c l = c' l by move=> /negPf lk; have := same l; rewrite !ffunE lk.
  have : chosen value c = chosen value c'.
    by apply: (residue_inj ki Dk hc hc') => m /off; rewrite !mxE => ->.
  move=> /rowP eqc; congr (_, _); apply/ffunP => l; have := eqc l; rewrite !mxE; exact: inj.
rewrite -[X in (_ * X)%N]cardsT -cardsX -(card_in_imset inj_move).
by rewrite -[n in X in (_ <= X)%N]card_ord -card_ffun max_card.
Qed.
End Ownership.

Theorem sample_ownership : Statements.Mixtures.sample_ownership.
Proof.
move=> R n a b loss x dl r rw i diff hr hw left.
have rwE w : rw w = \sum_k w 0 k *: dl k by apply: gradient_unique (hw w) _; apply: gradient_sum.
have rE : r = \sum_k dl k.
  apply: gradient_unique hr _; rewrite (eq_bigr (fun k => 1 *: dl k)) => [|k _]; last by rewrite scale1r.
  apply: eq_gradient (gradient_sum (index_enum _) (fun=> 1) diff) => y.
  by apply: eq_bigr => k _; rewrite mul1r.
have leftE w : left w = residue dl i w.
  rewrite /left rwE rE scaler_sumr -sumrB (bigD1 i) //= subrr add0r; apply: eq_bigr => k _.
  by rewrite scalerBl.
have rank0 k : k != i -> dl k != 0 -> (0 < \rank (others dl i))%N.
  move=> ki dk; rewrite lt0n mxrank_eq0; apply: contra dk => /eqP /row_matrixP /(_ k).
  by rewrite rowK (negPf ki) row0 => /eqP; rewrite mxvec_eq0.
split=> [w|||k ki dk|]; first exact: leftE.
- split; first by rewrite rE (bigD1 i).
  split=> [h k ki|d0 w]; last by rewrite leftE /residue big1 // => k /d0 ->; rewrite scaler0.
  have := h (delta_mx 0 k); rewrite leftE /residue (bigD1 k) //= big1 => [|l /andP [li /negPf lk]].
    by rewrite !mxE eqxx [i == k]eq_sym (negPf ki) subr0 scale1r addr0.
  by rewrite !mxE lk [i == k]eq_sym (negPf ki) subrr scale0r.
- exists (kermx (kept dl i)); split=> [|w]; last by rewrite leftE residue_eq0.
  by rewrite mxrank_ker rank_kept subnK // rank_leq_row.
- split=> [const||w w'|S value inj].
  + move/eqP: dk; apply; apply: gradient_unique (diff k) _.
    by apply: eq_gradient (gradient_const (loss k x) x) => y; rewrite const.
  + exact: rank0 dk.
  + by rewrite !leftE; apply: residue_inj.
  by have := residue_grid ki dk inj; congr (_ * _ <= _)%N; apply: eq_card => c; rewrite !inE leftE.
split=> [c|w k ki dk free away].
  by rewrite leftE /residue big1 // => k _; rewrite !mxE subrr scale0r.
apply: contra dk => /eqP; rewrite leftE /residue => h; apply/negPn; apply/negP => dk.
have := away k ki; rewrite -subr_eq0 => /eqP [].
apply: (free (fun l => w 0 l - w 0 i)) => //; rewrite -[RHS]h [RHS](bigID (fun l => dl l != 0)) /=.
by rewrite [X in _ + X]big1 ?addr0 // => l /andP [_ /negPn /eqP ->]; rewrite scaler0.
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

Section Updates.
Variables (R : realFieldType) (K : nat) (floor : R) (prior : 'I_K -> R) (w gain : nat -> 'I_K -> R).
Hypothesis prior_gt0 : forall k, 0 < prior k.
Hypothesis prior_sum : \sum_k prior k = 1.
Hypothesis floor01 : 0 <= floor <= 1.
Hypothesis gain_gt0 : forall t k, 0 < gain t k.
Hypothesis update : updated floor prior w gain.
Lemma kept_ge0 : 0 <= 1 - floor. Proof. by rewrite subr_ge0; have /andP [] := floor01. Qed.
Lemma floor_ge0 : 0 <= floor. Proof. by have /andP [] := floor01. Qed.
Lemma shares t : [/\ forall k, 0 <= w t k, \sum_k w t k = 1 & forall k, floor * prior k <= w t k].
Proof.
have [start step] := update; elim: t => [|t [w0 w1 wf]].
  split=> [k||k]; rewrite ?start ?(ltW (prior_gt0 k)) //; first by rewrite -prior_sum; apply: eq_bigr.
  by have /andP [_ f1] := floor01; rewrite ger_pmull.
have share_ge0 k : 0 <= w t k * gain t k by rewrite mulr_ge0 // ltW.
have Z0 : mixed (w t) (gain t) != 0.
  rewrite psumr_eq0 //; apply/allPn; case: (pickP (fun k => w t k != 0)) => [k wk|none].
    by exists k; rewrite ?mem_index_enum // mulf_eq0 negb_or wk gt_eqF.
  by have := w1; rewrite big1 => [/eqP|k _]; [rewrite eq_sym oner_eq0|apply/eqP; have := none k => /negbFE].
have Zp : 0 < mixed (w t) (gain t) by rewrite lt_def Z0 sumr_ge0.
case: (step t) => h; last by split=> [k||k]; rewrite ?(h k).1 // -w1; apply: eq_bigr => k _; rewrite (h k).1.
have above k : floor * prior k <= w t.+1 k.
  by rewrite h ler_addr mulr_ge0 ?kept_ge0 // divr_ge0 // ltW.
split=> // [k|]; first by apply: le_trans (above k); rewrite mulr_ge0 ?floor_ge0 // ltW.
rewrite (eq_bigr _ (fun k _ => h k)) /moved big_split /= -!mulr_sumr prior_sum -mulr_suml divff //.
by rewrite !mulr1 subrK.
Qed.
Lemma own t k : w t k * gain t k <= mixed (w t) (gain t).
Proof.
have [w0 _ _] := shares t; rewrite /mixed (bigD1 k) //= ler_addl sumr_ge0 // => i _.
by rewrite mulr_ge0 // ltW.
Qed.
Lemma mixed_ge0 t : 0 <= mixed (w t) (gain t).
Proof. by have [w0 _ _] := shares t; apply: sumr_ge0 => i _; rewrite mulr_ge0 // ltW. Qed.
Lemma stays t k : (1 - floor * (1 - prior k)) * (w t k * gain t k) <= mixed (w t) (gain t) * w t.+1 k.
Proof.
have [w0 w1 _] := shares t; have wk := w0 k; have Z0 := mixed_ge0 t; have wg := own t k; have p0 :=
  ltW (prior_gt0 k).
have p1 : prior k <= 1 by rewrite -prior_sum (bigD1 k) //= ler_addl sumr_ge0 // => i _; rewrite ltW.
have f0 := floor_ge0; case: (proj2 update t) => h; last first.
  have -> : mixed (w t) (gain t) = 1 by rewrite -w1; apply: eq_bigr => i _; rewrite (h i).2 mulr1.
  by rewrite (h k).1 (h k).2 mulr1 ler_wpmul2r // ler_subl_addr ler_addl mulr_ge0 // subr_ge0.
rewrite h /moved; have [Zz|Zn] := eqVneq (mixed (w t) (gain t)) 0.
  have -> : w t k * gain t k = 0 by apply/eqP; rewrite eq_le mulr_ge0 ?(ltW (gain_gt0 t k)) // andbT -Zz.
  by rewrite Zz mulr0 mul0r.
move: (mixed _ _) (w t k * gain t k) Zn wg => Z x Zn xZ.
have -> : Z * ((1 - floor) * (x / Z) + floor * prior k) = (1 - floor) * x + floor * prior k * Z by field.
have -> : (1 - floor * (1 - prior k)) * x = (1 - floor) * x + floor * prior k * x by ring.
by rewrite ler_add2l ler_wpmul2l // mulr_ge0.
Qed.
Lemma along source T : prior (source 0%N) * (\prod_(t < T) price floor prior source t) * (\prod_(t < T) gain
  t (source t))
  <= (\prod_(t < T) mixed (w t) (gain t)) * w T (source T).
Proof.
elim: T => [|T IH]; first by rewrite !big_ord0 !mulr1 mul1r (proj1 update).
have pr0 : 0 <= price floor prior source T.
  rewrite /price; case: ifP => _; last by rewrite mulr_ge0 ?floor_ge0 // ltW.
  by rewrite mulrBr mulr1 opprB addrCA addr_ge0 ?kept_ge0 // mulr_ge0 ?floor_ge0 // ltW.
have P0 : 0 <= \prod_(t < T) mixed (w t) (gain t) by apply: prodr_ge0 => t _; exact: mixed_ge0.
rewrite 3!big_ord_recr /=; move: IH pr0 P0.
move: (\prod_(_ < T) _) (\prod_(_ < T) _) (\prod_(_ < T) _) => Z b a IH pr0 P0.
have g0 := ltW (gain_gt0 T (source T)).
have -> : prior (source 0%N) * (a * price floor prior source T) * (b * gain T (source T))
  = prior (source 0%N) * a * b * (price floor prior source T * gain T (source T)) by ring.
apply: le_trans (ler_wpmul2r (mulr_ge0 pr0 g0) IH) _; rewrite -!mulrA ler_wpmul2l //.
rewrite mulrCA /price; case: eqP => [->|_]; first exact: stays.
have [_ _ wf] := shares T.+1; rewrite mulrC; apply: ler_pmul; rewrite ?own //.
- by have [w0 _ _] := shares T; rewrite mulr_ge0.
by rewrite mulr_ge0 ?floor_ge0 // ltW.
Qed.
End Updates.

Theorem mixture_regret : Statements.Mixtures.mixture_regret.
Proof.
move=> R K floor prior w gain [p0 p1] f01 g0 up T whole.
have path source : prior (source 0%N) * (\prod_(t < T) price floor prior source t)
    * (\prod_(t < T.+1) gain t (source t)) <= whole.
  rewrite /whole !big_ord_recr /= mulrA;
    apply: le_trans (ler_wpmul2r (ltW (g0 _ _)) (along p0 p1 f01 g0 up source T)) _.
  rewrite -mulrA ler_wpmul2l ?(own p0 p1 f01 g0 up) //; apply: prodr_ge0 => t _;
    exact: (mixed_ge0 p0 p1 f01 g0 up).
split=> // k; have := path (fun=> k).
by rewrite /price (eq_bigr (fun=> 1 - floor * (1 - prior k))) => [|t _];
  rewrite ?eqxx // prodr_const card_ord.
Qed.
