(** Appendix A: proofs of Statements/Noise.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Variance Products Noise.
From LAI Require Import Vectors Variance Products.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem shared_signal : Statements.Noise.shared_signal.
Proof. by []. Qed.

Theorem ghost_of_one : Statements.Noise.ghost_of_one.
Proof.
move=> R d z j L c; rewrite /influence_ghost /Networks.ghost big_ord1; split.
  by congr (- _); apply: eq_bigr => l _; rewrite /remains addrC subrK.
rewrite -opprD /signal_part /noise_part mulr_suml -big_split; congr (- _); apply: eq_bigr => l _ /=.
by rewrite /remains; ring.
Qed.

Theorem lai_of_one : Statements.Noise.lai_of_one.
Proof. by move=> R d z j L; rewrite /influence_lai /Networks.lai big_ord1 mulNr. Qed.

Lemma dot_split (R : comRingType) m n (x y a b : 'M[R]_(m, n)) :
  dot (x + a) (y + b) = dot a b + dot x y + (dot x b + dot a y).
Proof. by rewrite dotDl !dotDr; ring. Qed.

Section Average.
Variables (R : realFieldType) (W : finType) (P : law R W) (m n : nat).
Implicit Types X Y : W -> 'M[R]_(m, n).

Lemma eq_average X Y : X =1 Y -> average P X = average P Y.
Proof. by move=> h; apply: eq_bigr => w _; rewrite h. Qed.
Lemma average_const (A : 'M[R]_(m, n)) : average P (fun=> A) = A.
Proof. by rewrite /average -scaler_suml prob_sum scale1r. Qed.
Lemma averageD X Y : average P (fun w => X w + Y w) = average P X + average P Y.
Proof. by rewrite /average -big_split; apply: eq_bigr => w _; rewrite scalerDr. Qed.
Lemma averageN X : average P (fun w => - X w) = - average P X.
Proof. by rewrite /average -sumrN; apply: eq_bigr => w _; rewrite scalerN. Qed.
Lemma average_rest X : average P (rest P X) = 0.
Proof. by rewrite /rest averageD average_const subrr. Qed.
Lemma mean_dotl X (A : 'M[R]_(m, n)) : mean P (fun w => dot (X w) A) = dot (average P X) A.
Proof. by rewrite /average dot_suml; apply: eq_bigr => w _; rewrite dotZl. Qed.
Lemma mean_dotr X (A : 'M[R]_(m, n)) : mean P (fun w => dot A (X w)) = dot A (average P X).
Proof. by rewrite dotC -mean_dotl; apply: eq_mean => w; rewrite dotC. Qed.
Lemma mean_add (F G : W -> R) : mean P (fun w => F w + G w) = mean P F + mean P G.
Proof. by rewrite /mean -big_split; apply: eq_bigr => w _; rewrite mulrDr. Qed.
End Average.

Theorem output_fluctuation : Statements.Noise.output_fluctuation.
Proof.
move=> R W P m gz gj; split; first exact: average_rest.
rewrite (eq_mean _ (Y := fun w => (dot (average P gz) (average P gj) + dot (rest P gz w) (rest P gj w))
  + (dot (rest P gz w) (average P gj) + dot (average P gz) (rest P gj w)))) => [|w]; last first.
  have split_at (X : W -> 'cV[R]_m) : X w = rest P X w + average P X by rewrite /rest subrK.
  by rewrite [in LHS](split_at gz) [in LHS](split_at gj) dot_split.
by rewrite !mean_add mean_const mean_dotl mean_dotr !average_rest dot0l dot0r !addr0.
Qed.

(* Scalars as matrices of one entry. *)
Section Scalars.
Variable R : realFieldType.
Implicit Types a : nat -> R.
Lemma scalar_operator a k : operator (d := fun=> 1%N) (fun t => (a t)%:M) k = (\prod_(t < k) a t)%:M.
Proof.
elim: k => [|k IH]; first by rewrite operator0 big_ord0.
by rewrite operatorS IH big_ord_recr /= -scalar_mxM mulrC.
Qed.
Lemma eq_operator d (J J' : forall k, 'M[R]_(d k.+1, d k)) k : (forall t, J t = J' t) -> operator J k
  = operator J' k.
Proof. by move=> h; elim: k => [|k IH]; rewrite ?operator0 // !operatorS IH h. Qed.
Lemma dot_scalar (x y : R) : dot (x%:M : 'M_1) y%:M = x * y.
Proof. by rewrite /dot !big_ord1 !mxE /= !mulr1n. Qed.
Lemma average_scalar (W : finType) (P : law R W) (x : W -> R) : average P (fun w => (x w)%:M : 'M_1)
  = (mean P x)%:M.
Proof. by rewrite /average /mean raddf_sum /=; apply: eq_bigr => w _; rewrite scale_scalar_mx. Qed.
Lemma tr_scalar (x : R) : \tr (x%:M : 'M_1) = x.
Proof. by rewrite mxtrace_scalar mulr1n. Qed.
Lemma sum_bool2 (V : zmodType) (F : bool * bool -> V) :
  \sum_w F w = F (true, true) + F (true, false) + (F (false, true) + F (false, false)).
Proof.
rewrite (eq_bigr (fun w => F (w.1, w.2))) => [|[i j] _ //].
by rewrite -(pair_bigA _ (fun i j => F (i, j))) /= !big_bool.
Qed.
End Scalars.

(* Two outcomes of equal chances. *)
Program Definition coin (R : realFieldType) : law R [finType of bool] := @Law _ _ (fun=> 2%:R^-1) _ _.
Next Obligation. by rewrite invr_ge0 ler0n. Qed.
Next Obligation. by rewrite sumr_const card_bool -[LHS]mulr_natl mulfV ?pnatr_eq0. Qed.

Theorem jacobian_split : Statements.Noise.jacobian_split.
Proof.
move=> R; split=> [W P m n J|]; first exact: average_rest.
exists (coin R), (fun w _ => (if w then 1 else -1)%:M); split.
  rewrite (eq_operator (d := fun=> 1%N) (J' := fun=> 0%:M)) => [|t].
    by rewrite scalar_operator big_ord_recr /= mulr0 raddf0.
  by rewrite average_scalar /mean big_bool /= mulrN1 mulr1 subrr.
rewrite (eq_average _ (Y := fun w => 1%:M)) => [|w]; first exact: average_const.
by rewrite scalar_operator !big_ord_recr big_ord0 /= mul1r; case: w; rewrite ?mulrNN mul1r.
Qed.

Lemma gain_between (R : rcfType) d (B : forall k, 'M[R]_(d k.+1, d k)) rho :
  (forall t, gain_le (B t) (rho t)) -> forall u v, (u <= v)%N -> gain_le (between B v u) (gains rho u v).
Proof.
move=> hB u; elim=> [|v IH]; rewrite ?leqn0 => uv.
  by rewrite (eqP uv) between_self /gains big_geq //; split=> [|x]; rewrite ?ler01 // mul1mx mul1r.
move: uv; rewrite leq_eqVlt => /orP [/eqP ->|].
  by rewrite between_self /gains big_geq //; split=> [|x]; rewrite ?ler01 // mul1mx mul1r.
rewrite ltnS => uv; have [g0 hg] := IH uv; have [r0 hr] := hB v.
rewrite between_step // /gains big_nat_recr //=; split=> [|x]; first exact: mulr_ge0.
by rewrite -mulmxA [_ * rho v]mulrC -mulrA; apply: le_trans (hr _) _; apply: ler_wpmul2l.
Qed.

Theorem gain_products : Statements.Noise.gain_products.
Proof.
move=> R d B rho hB; split=> [|u|u t v /andP [ut tv]]; first exact: gain_between hB.
  by rewrite /gains big_geq.
exact: big_cat_nat.
Qed.

Theorem isotropic_gain : Statements.Noise.isotropic_gain.
Proof.
move=> R; split=> [dl dL M c ->|].
  by have [h0 h1] := trace_gain M c; split.
exists (\col_i (i == 0)%:R).
have -> : (\col_i (i == 0)%:R : 'M[R]_(2, 1))^T *m \col_i (i == 0)%:R = 1%:M.
  apply/matrixP => i k; rewrite !mxE !big_ord_recl big_ord0 !mxE /= !ord1 eqxx.
  by rewrite /= !mulr1 mulr0 !addr0.
by split=> //; rewrite /printed_gain mxtrace1.
Qed.

Theorem unit_gain : Statements.Noise.unit_gain.
Proof.
move=> R n k h; pose e : 'cV[R]_n.+2 := delta_mx 0 0; pose J : 'M[R]_n.+2 := delta_mx 0 0.
have keeps : J *m e = e by rewrite mul_delta_mx.
have {h} := h (fun=> J) (fun=> e) (fun=> esym keeps); rewrite /printed_gain.
have -> : operator (d := fun=> n.+2) (fun=> J) k.+1 = J.
  by elim: k => [|k IH]; rewrite operatorS ?operator0 ?mulmx1 // IH mul_delta_mx.
rewrite trmx_delta mul_delta_mx; have -> : \tr J = 1.
  rewrite /mxtrace (bigD1 0) //= mxE !eqxx big1 ?addr0 // => i /negPf i0; by rewrite mxE i0.
have e0 : e != 0.
  by apply/eqP => /matrixP /(_ 0 0) /eqP; rewrite !mxE !eqxx oner_eq0.
move=> /(_ (fun=> conj erefl e0)); apply/negP; rewrite -leNgt; exact: ler_norm.
Qed.

Theorem remainder_as_printed : Statements.Noise.remainder_as_printed.
Proof.
move=> R m n A dAz dAj c sz sj xz xj further gz gj similarity written.
have whole : similarity = c * dot gz gj + written.
  by rewrite /similarity (gain_and_remainder A dAz dAj c) /remainder_matrix /written -!dotDr -!mulmxDl.
have shares : dot gz gj = dot sz sj + (dot sz xj + dot xz sj + dot xz xj).
  by rewrite /gz /gj dotDl !dotDr !addrA.
clearbody similarity written; rewrite {}whole {}shares.
move: (dot sz sj) (dot sz xj + _ + _) => s x.
have -> : c * (s + x) + written - c * (s + x) = written by rewrite addrC addKr.
have -> : c * (s + x) + written - c * s = written + c * x by ring.
split; split=> [h|->]; rewrite ?addr0 //; last exact: (addrI written).
by apply: (addrI written); rewrite -h addr0.
Qed.

Theorem expansion : Statements.Noise.expansion.
Proof.
move=> R; split=> [d B D k e J|one]; last first.
  have hp : forall t, plus (d := fun=> 1%N) one one t = 2%:R%:M by move=> t; rewrite /plus /one -raddfD.
  rewrite (eq_operator (d := fun=> 1%N) _ hp) !scalar_operator !big_ord_recr !big_ord0 /= !mul1r -raddfB /=;
    split.
    by congr (_%:M); ring.
  rewrite /first_order !big_ord_recr big_ord0 /= add0r between_self between_step // between_self operator0.
  by rewrite !mulmx1 operatorS operator0 !mulmx1 -raddfD.
have tele t : operator J t = operator B t + e *: \sum_(s < t) between B t s.+1 *m D s *m operator J s.
  apply/eqP; rewrite -subr_eq0 opprD addrA subr_eq0 telescoping scaler_sumr; apply/eqP.
  by apply: eq_bigr => s _; rewrite -!scalemxAr -scalemxAl.
rewrite {1}tele addrC addKr /first_order.
rewrite (eq_bigr (fun t : 'I_k => between B k t.+1 *m D t *m operator B t
    + e *: \sum_(s < t) between B k t.+1 *m D t *m between B t s.+1 *m D s *m operator J s)) => [|t _].
  by rewrite big_split /= -scaler_sumr scalerDr scalerA.
rewrite {1}tele mulmxDr -scalemxAr mulmx_sumr; congr (_ + _ *: _).
by apply: eq_bigr => s _; rewrite !mulmxA.
Qed.

Lemma gain_sum_le (R : rcfType) m n k (A : 'I_k -> 'M[R]_(m, n)) (a : 'I_k -> R) :
  (forall t, gain_le (A t) (a t)) -> gain_le (\sum_t A t) (\sum_t a t).
Proof.
move=> h; split=> [|v]; first by apply: sumr_ge0 => t _; case: (h t).
rewrite mulmx_suml mulr_suml; apply: le_trans (norm_sum _ _ _) _.
by apply: ler_sum => t _; case: (h t) => _; apply.
Qed.
Lemma gain_mul (R : rcfType) m n p (A : 'M[R]_(m, n)) (B : 'M[R]_(n, p)) a b :
  gain_le A a -> gain_le B b -> gain_le (A *m B) (a * b).
Proof.
move=> [a0 ha] [b0 hb]; split=> [|v]; first exact: mulr_ge0.
by rewrite -mulmxA -mulrA; apply: le_trans (ha _) _; apply: ler_wpmul2l.
Qed.

Theorem expansion_bound : Statements.Noise.expansion_bound.
Proof.
move=> R; split=> [d B D rho delta k hB hD|C].
  apply: gain_sum_le => t; apply: gain_mul; last exact: gain_between.
  by apply: gain_mul => //; apply: gain_between.
have hc (x : R) : 0 <= x -> gain_le (x%:M : 'M_1) x.
  by move=> x0; split=> // v; rewrite mul_scalar_mx normZ ger0_norm.
exists (fun=> 0%:M), (fun=> 1%:M), (fun=> 0), (fun=> 1); split=> [t|t|];
  [exact: (hc 0 (lexx 0))|exact: (hc 1 ler01)|].
have hp : forall t, plus (d := fun=> 1%N) (fun=> 0%:M : 'M[R]_1) (fun=> 1%:M) t = 1%:M.
  by move=> t; rewrite /plus raddf0 add0r.
rewrite [X in C * X](_ : _ = 0) => [|]; last first.
  by rewrite !big_ord_recr big_ord0 /= /gains !big_nat1 !mul0r mulr0 !addr0.
rewrite (eq_operator (d := fun=> 1%N) _ hp) !scalar_operator !big_ord_recr !big_ord0 /= !mul1r !mulr0 raddf0
  subr0.
move=> [_ /(_ 1%:M)]; rewrite mul1mx mul0r; apply/negP; rewrite -ltNge lt_def norm_ge0 norm_eq0 andbT.
by apply/eqP => /matrixP /(_ 0 0) /eqP; rewrite !mxE eqxx oner_eq0.
Qed.

Section Sizes.
Variables (R : realFieldType).
Lemma size1_ge0 m n (A : 'M[R]_(m, n)) : 0 <= size1 A.
Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0. Qed.
Lemma entry_size1 m n (A : 'M[R]_(m, n)) i k : `|A i k| <= size1 A.
Proof.
rewrite /size1 (bigD1 i) //= (bigD1 k) //= -addrA ler_addl.
by apply: addr_ge0; apply: sumr_ge0 => x _ //; apply: sumr_ge0.
Qed.
Lemma size1_dot m n (A B : 'M[R]_(m, n)) : `|dot A B| <= size1 A * size1 B.
Proof.
rewrite /dot {1}/size1 mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => i _.
rewrite mulr_suml; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => k _.
by rewrite normrM; apply: ler_wpmul2l => //; apply: entry_size1.
Qed.
Lemma size1_mul m n (D : 'M[R]_(m, n)) (h : 'cV_n) : size1 (D *m h) <= size1 D * size1 h.
Proof.
rewrite {1 2}/size1 mulr_suml; apply: ler_sum => i _; rewrite big_ord1 mxE mulr_suml.
apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => k _.
by rewrite normrM; apply: ler_wpmul2l => //; apply: entry_size1.
Qed.
Lemma size1_add m n (A B : 'M[R]_(m, n)) : size1 (A + B) <= size1 A + size1 B.
Proof.
rewrite /size1 -big_split; apply: ler_sum => i _; rewrite -big_split; apply: ler_sum => k _.
by rewrite mxE; apply: ler_norm_add.
Qed.
End Sizes.

Theorem separating_operator : Statements.Noise.separating_operator.
Proof.
move=> R dl dL loss last f s D g through hf hl e e0.
pose G := size1 g + 1; pose K := size1 D + 1.
have G0 : 0 < G by rewrite ltr_paddl ?size1_ge0 ?ltr01.
have K0 : 0 < K by rewrite ltr_paddl ?size1_ge0 ?ltr01.
have eG : 0 < e / (2%:R * G) by rewrite divr_gt0 ?mulr_gt0 ?ltr0Sn.
have eK : 0 < e / (2%:R * K) by rewrite divr_gt0 ?mulr_gt0 ?ltr0Sn.
have [t1 t10 h1] := hf _ eG; have [t2 t20 h2] := hf _ ltr01; have [t3 t30 h3] := hl _ eK.
exists (Num.min t1 (Num.min t2 (t3 / K))); first by rewrite !lt_minr t10 t20 divr_gt0.
move=> h; rewrite !le_minr => /and3P [s1 s2 s3]; rewrite !through.
have {h1} r1 := h1 _ s1; have {h2} r2 := h2 _ s2.
have shift : f (s + h) = f s + (f (s + h) - f s) by rewrite [RHS]addrC subrK.
move: r1 r2; rewrite [in last _]shift; move: (f (s + h) - f s) => x r1 r2.
have hx : size1 x <= K * size1 h.
  rewrite -[x](subrK (D *m h)); apply: le_trans (size1_add _ _) _; rewrite [X in X <= _]addrC mulrDl.
  by apply: ler_add => //; apply: size1_mul.
have -> : last (f s + x) - last (f s) - dot (D^T *m g) h
    = (last (f s + x) - last (f s) - dot g x) + dot g (x - D *m h).
  by rewrite dot_mull trmxK dotBr addrA subrK.
apply: le_trans (ler_norm_add _ _) _.
have Gn : G != 0 by rewrite gt_eqF.
have Kn : K != 0 by rewrite gt_eqF.
have gG : size1 g <= G by rewrite ler_addl ler01.
clearbody G K.
have -> : e * size1 h = e / (2%:R * K) * (K * size1 h) + G * (e / (2%:R * G) * size1 h) by field;
  rewrite Gn Kn.
apply: ler_add.
  apply: le_trans (h3 _ _) _; last by apply: ler_wpmul2l => //; apply: ltW.
  by apply: le_trans hx _; rewrite mulrC -ler_pdivl_mulr.
by apply: le_trans (size1_dot _ _) _; apply: ler_pmul; rewrite ?size1_ge0.
Qed.

Lemma common (R : realFieldType) (I : finType) (Q : I -> R -> Prop) :
  (forall i t t', 0 < t' -> t' <= t -> Q i t -> Q i t') ->
  (forall i, exists2 t, 0 < t & Q i t) -> exists2 t, 0 < t & forall i, Q i t.
Proof.
move=> mono h; have [t t0 ht] : exists2 t, 0 < t & forall i, i \in enum I -> Q i t.
  elim: (enum I) => [|i r [t t0 IH]]; first by exists 1; rewrite ?ltr01.
  have [u u0 hu] := h i; exists (Num.min t u); first by rewrite lt_minr t0.
  move=> k; rewrite inE => /orP [/eqP ->|kr].
    by apply: mono hu; rewrite ?lt_minr ?t0 // le_minl lexx orbT.
  by apply: mono (IH _ kr); rewrite ?lt_minr ?t0 // le_minl lexx.
by exists t => // i; apply: ht; rewrite mem_enum.
Qed.

Theorem vjp_recursion : Statements.Noise.vjp_recursion.
Proof.
move=> R n m F below phi W b s p g above hphi hF hbelow.
have -> : diag_mx p *m W^T *m g = (W *m diag_mx p)^T *m g by rewrite trmx_mul tr_diag_mx.
apply: (separating_operator hbelow _ hF) => e e0.
pose K := size1 W + 1; have K0 : 0 < K by rewrite ltr_paddl ?size1_ge0 ?ltr01.
have eK : 0 < e / K by rewrite divr_gt0.
have [i t t' _ tt' ht h ht'|i|t t0 ht] := @common R _ (fun i t => forall h, `|h| <= t ->
    `|phi (s i 0 + h) - phi (s i 0) - p 0 i * h| <= e / K * `|h|).
- by apply: ht; apply: le_trans tt'.
- exact: hphi.
exists t => // h sh.
have -> : above (s + h) - above s - W *m diag_mx p *m h
    = W *m (map_mx phi (s + h) - map_mx phi s - diag_mx p *m h).
  by rewrite /above opprD addrACA subrr addr0 !mulmxBr mulmxA.
apply: le_trans (size1_mul _ _) _.
have small : size1 (map_mx phi (s + h) - map_mx phi s - diag_mx p *m h) <= e / K * size1 h.
  rewrite /size1 mulr_sumr; apply: ler_sum => i _; rewrite !big_ord1 mul_diag_mx !mxE.
  by apply: ht; apply: le_trans sh; apply: entry_size1.
apply: le_trans (_ : K * (e / K * size1 h) <= _); last by rewrite mulrA [K * _]mulrC divfK ?gt_eqF.
by apply: ler_pmul; rewrite ?size1_ge0 // ler_addl ler01.
Qed.

Section Scalar.
Variables (R : realFieldType) (W : finType) (P : law R W) (az aj : W -> nat -> R) (b : nat -> R).
Variables (gz gj : W -> R) (sz sj : R).
Definition scalar_model : model R (fun=> 1%N) W :=
  @Model R (fun=> 1%N) W P (fun w k => (az w k)%:M) (fun w k => (aj w k)%:M)
  (fun k => (b k)%:M) (fun w => (gz w)%:M) (fun w => (gj w)%:M) sz%:M sj%:M.
Lemma scalar_similarity L (l : 'I_L.+1) w : similarity scalar_model l w
  = ((\prod_(t < L - l) az w t) * gz w) * ((\prod_(t < L - l) aj w t) * gj w).
Proof. by rewrite /similarity /= !scalar_operator -!scalar_mxM dot_scalar. Qed.
Lemma scalar_gain L (l : 'I_L.+1) : model_gain scalar_model l = (\prod_(t < L - l) b t) ^+ 2.
Proof. by rewrite /model_gain /= scalar_operator tr_scalar_mx -scalar_mxM tr_scalar divr1 expr2. Qed.
Lemma scalar_means : (forall k, mean P (az ^~ k) = b k /\ mean P (aj ^~ k) = b k) -> means scalar_model.
Proof. by move=> h k; rewrite /= !average_scalar; have [-> ->] := h k. Qed.
Lemma scalar_centred : mean P gz = sz -> mean P gj = sj -> centred scalar_model.
Proof. by move=> hz hj; rewrite /centred /= !averageD !average_const !average_scalar hz hj !subrr. Qed.
End Scalar.

(* Two independent draws: the first has the chance q, the second is fair. *)
Program Definition two (R : realFieldType) (q : R) (q01 : 0 <= q <= 1) : law R [finType of bool * bool] :=
  @Law _ _ (fun w => (if w.1 then q else 1 - q) / 2%:R) _ _.
Next Obligation. by case/andP: q01 => q0 q1; rewrite divr_ge0 ?ler0n //; case: b => //=; rewrite subr_ge0.
  Qed.
Next Obligation. by rewrite sum_bool2 /=; field. Qed.

Lemma var_zero (R : realFieldType) (W : finType) (P : law R W) (X : W -> R) : (forall w, X w = 0) -> var P X
  = 0.
Proof.
move=> h; rewrite (eq_var _ (Y := fun w => 0 * X w)) => [|w]; last by rewrite h mul0r.
by rewrite varZ expr0n mul0r.
Qed.

Theorem energy_floor : Statements.Noise.energy_floor.
Proof.
move=> R h; have q01 : 0 <= (3%:R / 7%:R : R) <= 1.
  by rewrite divr_ge0 ?ler0n //= ler_pdivr_mulr ?ltr0n // mul1r ler_nat.
pose P := two q01; pose M := scalar_model P (fun w _ => if w.1 then - (1 / 3%:R) else 2%:R)
  (fun w _ => if w.1 then 3%:R else - (1 / 2%:R)) (fun=> 1) (fun w => if w.2 then 1 else -1) (fun=> 1) 0 1.
have hm : means M by apply: scalar_means => k; split; rewrite /mean sum_bool2 /=; field.
have hc : centred M by apply: scalar_centred; rewrite /mean sum_bool2 /=; field.
have gain1 l : model_gain M (L := 1) l = 1 by rewrite scalar_gain big1_eq expr1n.
have s0 w : similarity M (L := 1) ord0 w = if w.2 then -1 else 1.
  by rewrite scalar_similarity subn0 !big_ord1 /=; case: w => [[] []] /=; field.
have s1 w : similarity M (L := 1) ord_max w = if w.2 then 1 else -1.
  by rewrite scalar_similarity subnn !big_ord0 /= !mul1r mulr1.
have last_one : lift ord0 ord0 = ord_max :> 'I_2 by exact: val_inj.
have v0 : var P (Variance.ghost (fun=> 1) (similarity M (L := 1))) = 0.
  apply: var_zero => w; rewrite /Variance.ghost big_ord_recl big_ord1 last_one s0 s1.
  by case: w.2; rewrite !mul1r ?subrr ?addNr oppr0.
have v1 : var P (remainder (model_gain M (L := 1)) (similarity M (L := 1)) ord0) = 4%:R.
  rewrite (@eq_var _ _ _ _ (fun w => if w.2 then - 2%:R else 2%:R)) => [|w]; last first.
    by rewrite /remainder gain1 /signal s0 s1; case: w.2; ring.
  by rewrite /var /cov /mean !sum_bool2 /=; field.
have bad : \sum_l (1 : R) ^+ 2 * var P (remainder (model_gain M (L := 1)) (similarity M (L := 1)) l)
    <= var P (Variance.ghost (fun=> 1) (similarity M (L := 1))) := h _ _ M 1%N (fun=> 1) hm hc gain1.
move: bad; apply/negP; rewrite -ltNge v0 big_ord_recl v1 expr1n mul1r.
by rewrite ltr_paddr ?ltr0n // big_ord1 mul1r var_ge0.
Qed.

Theorem variance_as_printed : Statements.Noise.variance_as_printed.
Proof.
move=> R h; have q01 : 0 <= (1 / 2%:R : R) <= 1.
  by rewrite divr_ge0 ?ler01 ?ler0n //= ler_pdivr_mulr ?ltr0n // mul1r ler1n.
pose P := two q01; pose J := fun (w : bool * bool) (_ : nat) => (if w.1 then 2%:R else 0) : R.
pose M := scalar_model P J J (fun=> 1) (fun w => if w.2 then 1 else -1) (fun=> 1) 0 1.
have hm : means M by apply: scalar_means => k; split; rewrite /mean sum_bool2 /J /=; field.
have hc : centred M by apply: scalar_centred; rewrite /mean sum_bool2 /=; field.
have gain1 l : model_gain M (L := 1) l = 1 by rewrite scalar_gain big1_eq expr1n.
have := h _ _ M 1%N (fun=> 1) hm hc; rewrite /= -/P.
have last_one : lift ord0 ord0 = ord_max :> 'I_2 by exact: val_inj.
have s0 w : similarity M (L := 1) ord0 w = (if w.1 then 4%:R else 0) * (if w.2 then 1 else -1).
  rewrite scalar_similarity subn0 !big_ord1 /J /=; case: w => [[] []] /=; ring.
have s1 w : similarity M (L := 1) ord_max w = if w.2 then 1 else -1.
  by rewrite scalar_similarity subnn !big_ord0 /= !mul1r mulr1.
have r1 w : remainder (model_gain M (L := 1)) (similarity M (L := 1)) ord_max w = 0.
  by rewrite /remainder gain1 mul1r subrr.
rewrite [X in _ + 2%:R * X]big1 => [|l _]; last first.
  apply: big1 => k lk; have -> : k = ord_max by apply: val_inj; case: k lk => [[|[|k]]] //=;
    case: l => [[|[|l]]].
  by rewrite covC (eq_cov _ (X' := fun w => 0 * 0) (Y' :=
    remainder (model_gain M (L := 1)) (similarity M (L := 1)) l))
    ?covZl ?mul0r ?mulr0 // => w; rewrite r1 mulr0.
rewrite mulr0 addr0 big_ord_recl big_ord1 last_one (var_zero P r1) mulr0 addr0 expr1n mul1r.
rewrite /gain_sum big_ord_recl big_ord1 !gain1 !mul1r.
rewrite (@eq_var _ _ _ (signal _) (fun w => if w.2 then 1 else -1)) => [|w]; last exact: s1.
rewrite (@eq_var _ _ _ (remainder _ _ _) (fun w => (if w.1 then 3%:R else -1) * (if w.2 then 1 else -1))) =>
  [|w];
  last by rewrite /remainder gain1 /signal s0 s1; case: w => [[] []] /=; ring.
rewrite (@eq_var _ _ _ (Variance.ghost _ _) (fun w => (if w.1 then 5%:R else 1) * (if w.2 then -1 else 1))) =>
  [|w];
  last by rewrite /Variance.ghost big_ord_recl big_ord1 s0 last_one s1; case: w => [[] []] /=; ring.
rewrite /var /cov /mean !sum_bool2 /=; set x := (X in X = _); set y := (X in _ = X) => /eqP.
rewrite -subr_eq0; have -> : x - y = 4%:R by rewrite /x /y; field.
by rewrite pnatr_eq0.
Qed.

Section Halving.
Variable R : realFieldType.
Definition halving k : R := if k is k'.+1 then 4%:R^-1 ^+ k' else 0.
Lemma halving_sum L : \sum_(l < L.+1) halving (L - l) <= 2%:R.
Proof.
rewrite (reindex_inj rev_ord_inj) /= (eq_bigr (fun l : 'I_L.+1 => halving l)) => [|l _]; last first.
  by rewrite subSS subKn // -ltnS.
rewrite big_ord_recl /= add0r.
have geo n : 3%:R * (\sum_(i < n) (4%:R^-1 : R) ^+ i) = 4%:R - 4%:R * 4%:R^-1 ^+ n.
  elim: n => [|n IH]; first by rewrite big_ord0 mulr0 expr0 mulr1 subrr.
  by rewrite big_ord_recr /= mulrDr IH exprS; move: (4%:R^-1 ^+ n) => z; field.
rewrite -(@ler_pmul2l _ 3%:R) ?ltr0n // (eq_bigr (fun i : 'I_L => (4%:R^-1 : R) ^+ i)) // geo ler_subl_addr.
apply: (@le_trans _ _ (3%:R * 2%:R)); first by rewrite -natrM ler_nat.
by rewrite ler_addl mulr_ge0 ?ler0n // exprn_ge0 // invr_ge0 ler0n.
Qed.
Lemma halving_ge0 k : 0 <= halving k.
Proof. by case: k => [|k] //=; rewrite exprn_ge0 // invr_ge0 ler0n. Qed.
End Halving.

Theorem growth_with_depth : Statements.Noise.growth_with_depth.
Proof.
move=> R h; have q01 : 0 <= (1 / 2%:R : R) <= 1.
  by rewrite divr_ge0 ?ler01 ?ler0n //= ler_pdivr_mulr ?ltr0n // mul1r ler1n.
pose P := two q01; pose J (x : bool) t : R := if t is 0%N then x%:R else 1 / 2%:R.
pose M := scalar_model P (fun w => J w.1) (fun w => J w.2) (fun=> 1 / 2%:R) (fun=> 1) (fun=> 1) 1 1.
pose b (w : bool * bool) : R := (w.1 && w.2)%:R - 1 / 4%:R.
have hm : means M.
  by apply: scalar_means => k; split; rewrite /mean sum_bool2 /J; case: k => [|k] /=; field.
have hc : centred M by apply: scalar_centred; rewrite /mean sum_bool2 /=; field.
have e L (l : 'I_L.+1) w : remainder (model_gain M (L := L)) (similarity M (L := L)) l w
  = halving R (L - l) * b w.
  rewrite /remainder scalar_gain /signal !scalar_similarity subnn !big_ord0.
  case: (L - l)%N => [|k] /=; first by rewrite !big_ord0; ring.
  rewrite !big_ord_recl /= !prodr_const card_ord;
    have -> : 4%:R^-1 ^+ k = (1 / 2%:R) ^+ k * (1 / 2%:R) ^+ k :> R.
    by rewrite -exprMn; congr (_ ^+ _); field.
  by move: ((1 / 2%:R) ^+ k) => z; rewrite /b; case: w => [[] []] /=; field.
have vb : var P b = 3%:R / 16%:R by rewrite /var /cov /mean !sum_bool2 /b /=; field.
have pos : 0 < var P b by rewrite vb divr_gt0 ?ltr0n.
have cv L (l k : 'I_L.+1) : cov P (remainder (model_gain M (L := L)) (similarity M (L := L)) l)
    (remainder (model_gain M (L := L)) (similarity M (L := L)) k)
      = halving R (L - l) * (halving R (L - k) * var P b).
  by rewrite (eq_cov P (e L l) (e L k)) covZl covC covZl.
have hcov L (l k : 'I_L.+1) : 0 <= cov P (remainder (model_gain M (L := L)) (similarity M (L := L)) l)
    (remainder (model_gain M (L := L)) (similarity M (L := L)) k).
  by rewrite cv !mulr_ge0 ?halving_ge0 // ltW.
have hpos L (l : 'I_L.+1) : (l < L)%N -> 0
  < var P (remainder (model_gain M (L := L)) (similarity M (L := L)) l).
  move=> lL; rewrite /var cv; have : (0 < L - l)%N by rewrite subn_gt0.
  by case: (L - l)%N => [|k] //= _; rewrite !mulr_gt0 // exprn_gt0 // invr_gt0 ltr0n.
have [L] := h _ _ M hm hc hcov hpos (4%:R * var P b); apply/negP; rewrite -leNgt.
rewrite (@eq_var _ _ _ _ (fun w => (\sum_(l < L.+1) halving R (L - l)) * b w)) => [|w]; last first.
  by rewrite /noise mulr_suml; apply: eq_bigr => l _; rewrite mul1r e.
rewrite varZ; apply: (@le_trans _ _ (4%:R * var P b)); last by rewrite ler_pmulr ?mulr_gt0 ?ltr0n // ler1n.
apply: ler_wpmul2r; first exact: ltW.
have -> : 4%:R = 2%:R ^+ 2 :> R by rewrite -natrX.
rewrite ler_pexpn2r ?nnegrE ?ler0n ?halving_sum //; apply: sumr_ge0 => l _; exact: halving_ge0.
Qed.
