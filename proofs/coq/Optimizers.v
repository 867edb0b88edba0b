(** Proofs of Statements/Optimizers.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Optimizers.
From LAI Require Import Vectors Ghost Derivatives.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem running_unrolled : Statements.Optimizers.running_unrolled.
Proof.
move=> R p n gamma D G hD weight; split=> [|/andP [g0 g1] k]; last first.
  by split=> [|i]; rewrite ?mulr_gt0 ?subr_gt0 ?exprn_gt0.
rewrite /weight; elim=> [|k [IH1 IH2]].
  by rewrite !big_ord0 !addr0 expr0 scale1r.
have shift (i : 'I_k) : (k.+1 - i.+1 = (k - i.+1).+1)%N by rewrite subSn.
rewrite !big_ord_recr /= subnn expr0 mulr1; split.
  have -> : D k.+1 = gamma *: D k + (1 - gamma) *: running_square 0 0 (G k).
    by rewrite hD; apply/colP => i; rewrite !mxE !mul0r add0r subr0 mul1r.
  rewrite {}IH1 scalerDr scalerA -exprS -addrA; congr (_ + (_ + _)); rewrite scaler_sumr.
  by apply: eq_bigr => i _; rewrite scalerA shift exprS mulrCA.
rewrite (eq_bigr (fun i : 'I_k => gamma * ((1 - gamma) * gamma ^+ (k - i.+1)))) => [|i _].
  by rewrite -mulr_sumr exprS addrA -mulrDr IH2 mulr1 addrC subrK.
by rewrite shift exprS mulrCA.
Qed.

Lemma derivative_minus (R : realFieldType) p (f : 'cV[R]_p -> R) theta G u :
  gradient f theta G -> derivative (fun eta => f (theta - eta *: u)) 0 (- dot G u).
Proof.
move=> hf; apply: derivative_as (derivative_line (- u) hf) _ _ => [y|]; last by rewrite dotNr.
by rewrite scalerN.
Qed.

Theorem adam_direction : Statements.Optimizers.adam_direction.
Proof.
move=> R p loss theta D gV gj D0 hf; split; first exact: derivative_minus.
rewrite /dot; apply: eq_bigr => i _; rewrite !big_ord1 !mxE mulrACA -invfM -expr2 sqr_sqrtr ?sqrtr_ge0 //.
by rewrite mulrA.
Qed.

Theorem both_sides_reverse : Statements.Optimizers.both_sides_reverse.
Proof.
move=> R gamma; pose pair (a b : R) : 'cV[R]_2 := \col_i (if i == ord0 then a else b).
have s16 : Num.sqrt (16%:R : R) = 4%:R
  by rewrite (_ : 16%:R = 4%:R ^+ 2) ?sqrtr_sqr ?ger0_norm ?ler0n // -natrX.
have dot2 a b a' b' : dot (pair a b) (pair a' b') = a * a' + b * b'.
  by rewrite /dot !big_ord_recl !big_ord0 !mxE /= !addr0.
have scale2 a b : scaled (pair 1 16%:R) (pair a b) = pair a (b / 4%:R).
  by apply/matrixP => i k; rewrite !mxE; case: (i == ord0); rewrite ?sqrtr1 ?divr1 ?s16.
exists (pair 1 16%:R), (pair 1 4%:R), (pair 1 1), (pair (-1) 8%:R); split.
- apply/colP => i; rewrite !mxE !big_ord1 !mxE mul0r add0r subr0 mul1r -mulrDl addrC subrK mul1r divr1.
  by case: (i == ord0); rewrite ?expr1n // -natrX.
- by move=> i; rewrite mxE; case: (i == ord0); rewrite ?ltr01 ?ltr0n.
- move=> loss theta /derivative_minus hf; have := hf (scaled (pair 1 16%:R) (pair (-1) 8%:R)).
  rewrite scale2 dot2 (_ : 1 * -1 + 1 * (8%:R / 4%:R) = 1) //; field.
  by [].
rewrite !scale2 dot2; field.
by [].
Qed.

Lemma scaled_outer (R : rcfType) p q (D g : 'cV[R]_p) (c a : 'cV[R]_q) : (forall i, 0 < D i 0) ->
  scaled (D *m c^T) (g *m a^T) = scaled D g *m (scaled c a)^T.
Proof.
move=> D0; apply/matrixP => i k; rewrite !mxE !big_ord1 !mxE sqrtrM ?(ltW (D0 i)) // invfM.
by rewrite mulrACA.
Qed.

Theorem adam_readouts : Statements.Optimizers.adam_readouts.
Proof.
move=> R d n L V j sz sj fz fj v D c Gz Gj hz hj [D0 c0] hv hG.
have readout q (a : 'cV[R]_q) (s : 'cV_(d L)) f g :
    gradient f s g -> gradient (fun U => f (s + U *m a)) 0 (g *m a^T).
  move=> hf; apply: (gradient_chain (phi := mulmxr_linear _ a) _ hf) => X /=; first by rewrite add0r.
  by rewrite dot_mulr trmxK.
apply: eq_bigr => z _; rewrite mulr_suml big_nat [RHS]big_nat; apply: eq_bigr => l hl.
have [hGz hGj] := hG l hl.
rewrite (gradient_unique (hGz z) (readout _ _ _ _ _ (hz z))) (gradient_unique hGj (readout _ _ _ _ _ hj)).
by rewrite hv scaled_outer // dot_outer.
Qed.

(* One coordinate of Adam's step, for a gradient G that moves with the velocity a. *)
Lemma one_coordinate (R : rcfType) (b1 b2 B1 B2 m0 v0 a x eps : R) (G : R -> R) :
  0 < B1 -> 0 < B2 -> 0 <= eps -> derivative G x a ->
  let M y := (b1 * m0 + (1 - b1) * G y) / B1 in
  let V y := (b2 * v0 + (1 - b2) * G y ^+ 2) / B2 in
  0 < V x ->
  derivative (fun y => M y / (Num.sqrt (V y) + eps)) x
    (((1 - b1) / (B1 * (Num.sqrt (V x) + eps))
      - M x * (1 - b2) * G x / (B2 * Num.sqrt (V x) * (Num.sqrt (V x) + eps) ^+ 2)) * a).
Proof.
move=> B10 B20 e0 dG M V V0.
have B1n : B1 != 0 by rewrite gt_eqF.
have B2n : B2 != 0 by rewrite gt_eqF.
have dM : derivative M x ((1 - b1) / B1 * a).
  apply: derivative_as (derivative_add (derivative_const (b1 * m0 / B1) x)
    (derivative_scale ((1 - b1) / B1) dG)) _ _ => [y|]; last by rewrite add0r.
  by rewrite /M; field.
have dV : derivative V x ((1 - b2) / B2 * (a * G x + G x * a)).
  apply: derivative_as (derivative_add (derivative_const (b2 * v0 / B2) x)
    (derivative_scale ((1 - b2) / B2) (derivative_mul dG dG))) _ _ => [y|]; last by rewrite add0r.
  by rewrite /V; field.
have dS := derivative_add (derivative_sqrt V0 dV) (derivative_const eps x).
have s0 : 0 < Num.sqrt (V x) by rewrite sqrtr_gt0.
have S0 : Num.sqrt (V x) + eps != 0 by rewrite gt_eqF // ltr_paddr.
have dI := derivative_inv (f := fun y => Num.sqrt (V y) + eps) S0 dS.
apply: derivative_as (derivative_mul dM dI) _ _ => //.
move: (M x) (G x) S0 s0 => Mx Gx; set s := Num.sqrt (V x) => S0 s0.
by field; rewrite S0 B1n B2n (gt_eqF s0) ?pnatr_eq0.
Qed.

(* Adam's step along a path of gradients with the velocity u. *)
Lemma adam_path (R : rcfType) p (loss : 'cV[R]_p -> R) theta (B : R -> 'cV[R]_p) (u : 'cV[R]_p) x m0 v0
  (b1 b2 : R) t
    (eta eps : R) gV :
  let m y := first b1 t m0 (B y) in
  let v y := second b2 t v0 (B y) in
  (forall i, derivative (fun y => B y i 0) x (u i 0)) ->
  (forall i, 0 < v x i 0) -> 0 < b1 < 1 /\ 0 < b2 < 1 -> (0 < t)%N -> 0 <= eps ->
  gradient loss (adam_step eta eps theta (m x) (v x)) gV ->
  derivative (fun y => loss (adam_step eta eps theta (m y) (v y))) x
    (- eta * dot (times (Q b1 b2 t eps (m x) (v x) (B x)) gV) u).
Proof.
move=> m v dB v_pos [/andP [b10 b11] /andP [b20 b21]] t0 e0 hf.
have bias (b : R) : 0 < b -> b < 1 -> 0 < 1 - b ^+ t.
  by move=> b0 b1'; rewrite subr_gt0 exprn_ilt1 ?(ltW b0) // -lt0n.
set q := Q _ _ _ _ _ _ _.
have -> : - eta * dot (times q gV) u = dot gV (\col_i (- eta * (q i 0 * u i 0))).
  rewrite /dot mulr_sumr; apply: eq_bigr => i _; rewrite !big_ord1 [times q gV i 0]mxE [X in _ = _ * X]mxE.
  by rewrite [RHS]mulrCA; congr (_ * _); rewrite [RHS]mulrCA mulrA.
apply: velocity_gradient => //; apply: velocity_entries => i.
have := v_pos i; rewrite /v mxE => V0.
have hd := @one_coordinate R b1 b2 _ _ (m0 i 0) (v0 i 0) (u i 0) x eps (fun y => B y i 0) (bias b1 b10 b11)
  (bias b2 b20 b21) e0 (dB i) V0.
have ht := derivative_add (derivative_const (theta i 0) x) (derivative_scale (- eta) hd).
apply: derivative_as ht _ _ => [y|].
  by rewrite [RHS]mxE mulNr /m /v [first _ _ _ _ _ _]mxE [second _ _ _ _ _ _]mxE.
by rewrite add0r [RHS]mxE /q [Q _ _ _ _ _ _ _ _ _]mxE /m /v [first _ _ _ _ _ _]mxE [second _ _ _ _ _ _]mxE.
Qed.

Lemma batch_moves (R : realFieldType) n p (c : 'cV[R]_p) w (g : 'I_n -> 'cV_p) j x i :
  derivative (fun y => batch c w g j y i 0) x (g j i 0).
Proof.
pose r := (c + \sum_(k | k != j) w k *: g k) i 0.
apply: derivative_as (derivative_affine r (g j i 0) x) _ _ => // y.
rewrite /batch /r [in RHS](bigD1 j) //= eqxx !mxE -addrA; congr (_ + _); rewrite addrC; congr (_ + _).
by rewrite !summxE; apply: eq_bigr => k /negPf ->.
Qed.

Theorem adam_derivative : Statements.Optimizers.adam_derivative.
Proof.
move=> R n p loss theta c w g j m0 v0 b1 b2 t eta eps gV m v v_pos hb t0 e0 hf.
by apply: adam_path => // i; exact: batch_moves.
Qed.

Lemma clip_slopeE (R : rcfType) p (limit pad : R) (g u : 'cV[R]_p) i : (clip_slope limit pad g *m u) i 0
  = limit / (norm g + pad) * (u i 0 - (norm g * (norm g + pad))^-1 * (g i 0 * dot g u)).
Proof.
have inner : g^T *m u = (dot g u)%:M.
  rewrite [g^T *m u]mx11_scalar; congr (_%:M); rewrite mxE; apply: eq_bigr => k _.
  by rewrite big_ord1 mxE.
rewrite /clip_slope -scalemxAl mulmxBl mul1mx -scalemxAl -mulmxA inner mul_mx_scalar.
by rewrite !mxE [dot g u * _]mulrC.
Qed.

(* A path of gradients that is clipped at x. *)
Lemma clip_moves (R : rcfType) p (B : R -> 'cV[R]_p) (u : 'cV[R]_p) x (limit pad : R) :
  (forall i, derivative (fun y => B y i 0) x (u i 0)) ->
  0 <= pad -> 0 < norm (B x) -> 0 < limit < norm (B x) + pad ->
  forall i, derivative (fun y => clip limit pad (B y) i 0) x ((clip_slope limit pad (B x) *m u) i 0).
Proof.
move=> dB d0 N0 /andP [l0 lN] i.
have dotE (f h : 'cV[R]_p) : dot f h = \sum_k f k 0 * h k 0 by apply: eq_bigr => k _; rewrite big_ord1.
have dsq : derivative (fun y => dot (B y) (B y)) x (2%:R * dot (B x) u).
  apply: derivative_as (derivative_sum (index_enum _) (fun k => derivative_mul (dB k) (dB k))) _ _ => [y|].
    by rewrite dotE.
  by rewrite dotE mulr_sumr; apply: eq_bigr => k _; ring.
have sq0 : 0 < dot (B x) (B x) by rewrite -sqrtr_gt0.
have dN := derivative_sqrt sq0 dsq.
have dS := derivative_add dN (derivative_const pad x).
have S0 : norm (B x) + pad != 0 by rewrite gt_eqF // (lt_trans l0).
have dI := derivative_inv (f := fun y => norm (B y) + pad) S0 dS.
have active : near (fun h => limit < norm (B (x + h)) + pad).
  have gap : 0 < (norm (B x) + pad - limit) / 2%:R by rewrite divr_gt0 ?ltr0n // subr_gt0.
  have [s s0 hs] := derivative_continuous dS gap; exists s => // h /hs; rewrite addr0 distrC => hh.
  have half : (norm (B x) + pad - limit) / 2%:R < norm (B x) + pad - limit.
    by rewrite ltr_pdivr_mulr ?ltr0n // ltr_pmulr ?subr_gt0 // ltr1n.
  by have := le_lt_trans (le_trans (ler_norm _) hh) half; rewrite ltr_add2l ltr_opp2.
have same : near (fun h => limit * (norm (B (x + h)) + pad)^-1 * B (x + h) i 0
  = clip limit pad (B (x + h)) i 0).
  apply: near_imply active _ => h hl; rewrite mxE; congr (_ * _); rewrite min_r //.
  by rewrite ler_pdivr_mulr ?mul1r ?ltW // (lt_trans l0).
apply: derivative_near same _.
apply: derivative_as (derivative_mul (derivative_scale limit dI) (dB i)) _ _ => //.
by rewrite clip_slopeE; rewrite -/(norm (B x)); field; rewrite S0 (gt_eqF N0).
Qed.

Theorem adam_clipped : Statements.Optimizers.adam_clipped.
Proof.
move=> R n p loss theta c w g j m0 v0 b1 b2 t eta eps limit pad gV whole clipped m v v_pos hb t0 e0.
move=> d0 N0 lN hf.
have sym (G : 'cV[R]_p) : (clip_slope limit pad G)^T = clip_slope limit pad G.
  by rewrite linearZ /= linearB /= trmx1 linearZ /= trmx_mul trmxK.
rewrite dot_mull sym; apply: adam_path => // i; apply: clip_moves => // k; exact: batch_moves.
Qed.

Theorem batch_moments_suffice : Statements.Optimizers.batch_moments_suffice.
Proof.
move=> R p b1 b2 t eta eps hb t0 e0; exists (fun m v g gV => - eta *: times (Q b1 b2 t eps m v g) gV).
move=> n loss theta c w g m0 v0 gV total m v v_pos hf j.
have same : batch c w g j (w j) = total.
  by rewrite /batch; congr (_ + _); apply: eq_bigr => k _; case: eqP => [->|].
have := @adam_derivative R n p loss theta c w g j m0 v0 b1 b2 t eta eps gV; cbv zeta; rewrite !same => h.
by rewrite dotZl; apply: h.
Qed.
