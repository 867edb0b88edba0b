(** Proofs of Statements/Influence.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Costs Influence.
From LAI Require Import Vectors Ghost Derivatives.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Gradients.
Variables (R : realFieldType) (m n : nat).
Implicit Types (f : 'M[R]_(m, n) -> R) (X G H D : 'M[R]_(m, n)).

Lemma gradient_as f f' X G : gradient f X G -> (forall Y, f Y = f' Y) -> gradient f' X G.
Proof. by move=> hf ff e /hf [t t0 ht]; exists t => // D /ht; rewrite !ff. Qed.
Lemma gradient_add f f' X G G' :
  gradient f X G -> gradient f' X G' -> gradient (fun Y => f Y + f' Y) X (G + G').
Proof.
move=> hf hg e e0; have e2 : 0 < e / 2%:R by rewrite divr_gt0 ?ltr0n.
have [t t0 ht] := hf _ e2; have [s s0 hs] := hg _ e2; exists (Num.min t s); first by rewrite lt_minr t0.
move=> D; rewrite le_minr => /andP [/ht h1 /hs h2]; rewrite [e]splitr mulrDl dotDl.
have -> : f (X + D) + f' (X + D) - (f X + f' X) - (dot G D + dot G' D)
        = (f (X + D) - f X - dot G D) + (f' (X + D) - f' X - dot G' D) by ring.
exact: le_trans (ler_norm_add _ _) (ler_add h1 h2).
Qed.
Lemma gradient_scale c f X G : gradient f X G -> gradient (fun Y => c * f Y) X (c *: G).
Proof.
move=> hf e e0; have c0 : 0 < `|c| + 1 by rewrite ltr_spaddr ?ltr01.
have [|t t0 ht] := hf (e / (`|c| + 1)); first by rewrite divr_gt0.
exists t => // D /ht hD; rewrite dotZl -!mulrBr normrM.
apply: (@le_trans _ _ ((`|c| + 1) * `|f (X + D) - f X - dot G D|)).
  by rewrite ler_wpmul2r // ler_addl ler01.
apply: le_trans (ler_wpmul2l (ltW c0) hD) _; rewrite mulrA [_ * (e / _)]mulrC divfK ?gt_eqF //.
Qed.
Lemma gradient_sum I (s : seq I) (F : I -> 'M[R]_(m, n) -> R) X (G : I -> 'M[R]_(m, n)) :
  (forall i, gradient (F i) X (G i)) ->
  gradient (fun Y => \sum_(i <- s) F i Y) X (\sum_(i <- s) G i).
Proof.
move=> hF; elim: s => [|i s IH].
  move=> e e0; exists 1 => [|D _]; first exact: ltr01.
  by rewrite !big_nil dot0l !subr0 normr0 mulr_ge0 ?size1_ge0 ?(ltW e0).
by rewrite big_cons; apply: gradient_as (gradient_add (hF i) IH) _ => Y; rewrite big_cons.
Qed.
End Gradients.

Lemma derivative_step (R : realFieldType) n p (loss : 'I_n -> 'cV[R]_p -> R) theta gz u :
  (forall z, gradient (loss z) theta (gz z)) ->
  derivative (fun eta => \sum_z loss z (theta - eta *: u)) 0 (- \sum_z dot (gz z) u).
Proof.
move=> hf; apply: derivative_as (derivative_line (- u) (gradient_sum (index_enum _) hf)) _ _ => [y|].
  by apply: eq_bigr => z _; rewrite scalerN.
by rewrite dotNr dot_suml.
Qed.

Theorem inner_product_slope : Statements.Influence.inner_product_slope.
Proof. by move=> R n p loss theta gz gj hf; apply: derivative_step. Qed.

Lemma derivative_sign (R : realFieldType) (f : R -> R) d : derivative f 0 d -> d < 0 ->
  exists2 t, 0 < t & forall h, 0 < h <= t -> f h - f 0 < 0.
Proof.
move=> hf d0; have [|t t0 ht] := hf (- d / 2%:R); first by rewrite divr_gt0 ?ltr0n // oppr_gt0.
exists t => // h /andP [h0 hh]; have := ht h; rewrite gtr0_norm // => /(_ hh) /(le_trans (ler_norm _)).
rewrite add0r ler_subl_addr => /le_lt_trans; apply.
have -> : - d / 2%:R * h + d * h = d / 2%:R * h by field.
by rewrite pmulr_llt0 // pmulr_llt0 ?invr_gt0 ?ltr0n.
Qed.

Theorem rule_is_reversed : Statements.Influence.rule_is_reversed.
Proof.
move=> R n p loss theta gz gj hf printed change; have hd := derivative_step gj hf.
have c0 : \sum_z loss z theta = \sum_z loss z (theta - 0 *: gj) by apply: eq_bigr => z _;
  rewrite scale0r subr0.
split=> [neg|pos|g0].
- by have [t t0 ht] := derivative_sign hd neg; exists t => // eta /ht; rewrite -c0.
- have [|t t0 ht] := derivative_sign (derivative_scale (-1) hd) _; first by rewrite mulN1r oppr_lt0.
  by exists t => // eta /ht; rewrite -mulrBr -c0 mulN1r oppr_lt0.
rewrite /inner_product big_ord1 oppr_lt0 /dot lt_def sumr_ge0 => [|i _]; last first.
  by apply: sumr_ge0 => k _; rewrite -expr2 sqr_ge0.
rewrite andbT; apply: contra g0 => /eqP; move/eqP; rewrite psumr_eq0 => [/allP h|i _]; last first.
  by apply: sumr_ge0 => k _; rewrite -expr2 sqr_ge0.
apply/eqP/colP => i; move: (h i (mem_index_enum i)).
by rewrite big_ord1 -expr2 sqrf_eq0 mxE => /eqP.
Qed.

Lemma taylor_slope (R : realFieldType) (f : R -> R) a1 a2 M t : 0 < t ->
  (forall e, `|e| <= t -> `|f e - (f 0 + a1 * e + a2 * e ^+ 2)| <= M * `|e| ^+ 3) -> derivative f 0 a1.
Proof.
move=> t0 hf e e0; set K := `|a2| + `|M| * t.
have K0 : 0 <= K by rewrite addr_ge0 // mulr_ge0 // ltW.
have K1 : 0 < K + 1 by rewrite ltr_spaddr ?ltr01.
exists (Num.min t (e / (K + 1))) => [|h]; first by rewrite lt_minr t0 divr_gt0.
rewrite le_minr => /andP [ht he]; rewrite add0r.
have -> : f h - f 0 - a1 * h = (f h - (f 0 + a1 * h + a2 * h ^+ 2)) + a2 * h ^+ 2 by ring.
apply: le_trans (ler_norm_add _ _) _; apply: (@le_trans _ _ (K * `|h| * `|h|)).
  rewrite addrC /K !mulrDl normrM normrX expr2 mulrA ler_add2l; apply: le_trans (hf _ ht) _.
  apply: (@le_trans _ _ (`|M| * `|h| ^+ 3)); first by rewrite ler_wpmul2r ?exprn_ge0 ?ler_norm.
  by rewrite exprS expr2 -!mulrA ler_wpmul2l // ler_wpmul2r // mulr_ge0.
rewrite ler_wpmul2r //; apply: (@le_trans _ _ ((K + 1) * `|h|)).
  by rewrite ler_wpmul2r // ler_addl ler01.
by rewrite mulrC -ler_pdivl_mulr.
Qed.

Theorem directional_derivative : Statements.Influence.directional_derivative.
Proof.
move=> R n p val loss theta gz gj hz hj along score.
have slope : derivative along 0 score by rewrite /score -dot_suml dotC; exact: derivative_line.
split=> // a1 a2 M t t0 taylor h /andP [h0 ht].
rewrite (derivative_unique slope (taylor_slope t0 taylor)).
have h1 : h != 0 by rewrite -normr_gt0.
have hM : `|- h| <= t by rewrite normrN.
have := ler_add (taylor h ht) (taylor (- h) hM); rewrite normrN => /(le_trans (ler_norm_sub _ _)) bound.
have -> : (along h - along (- h)) / (2%:R * h) - a1 = ((along h - (along 0 + a1 * h + a2 * h ^+ 2))
    - (along (- h) - (along 0 + a1 * - h + a2 * (- h) ^+ 2))) / (2%:R * h) by field.
rewrite normrM normfV normrM normr_nat ler_pdivr_mulr ?mulr_gt0 ?ltr0n //; apply: le_trans bound _.
have -> : h ^+ 2 = `|h| ^+ 2 by rewrite real_normK ?num_real.
by rewrite le_eqVlt; apply/orP; left; apply/eqP; move: `|h| => k; ring.
Qed.

Theorem position_score : Statements.Influence.position_score.
Proof.
move=> R p q n W GV A f G hf; have hD := gradient_mulmx hf; split=> [|D /gradient_unique /(_ hD) ->].
  by exists (G *m A^T).
have outer : G *m A^T = \sum_t col t G *m (col t A)^T.
  by apply/matrixP => i k; rewrite summxE mxE; apply: eq_bigr => t _; rewrite !mxE big_ord1 !mxE.
have same : \sum_t dot (col t G) (GV *m col t A) = dot GV (\sum_t col t G *m (col t A)^T).
  by rewrite dot_sumr; apply: eq_bigr => t _; exact: etrans (dotC _ _) (dot_mulr _ _ _).
by rewrite outer.
Qed.

Definition unfolded (R : ringType) c k n m (src : 'I_m -> 'I_k -> option 'I_n) (x : 'M[R]_(c, n)) :
  'M_(c * k, m) :=
  \matrix_(i, t) patch src x t i 0.
Lemma convolutionE (R : ringType) p c k n m (src : 'I_m -> 'I_k -> option 'I_n) (x : 'M[R]_(c, n))
  (K : 'M_(p, c * k)) :
  convolution src x K = K *m unfolded src x.
Proof.
apply/matrixP => i t; rewrite !mxE [LHS]pair_bigA /= [RHS](reindex _ (curry_mxvec_bij _ _)) /=.
by apply: eq_bigr => -[a o] _; rewrite !mxE mxvecE mxE.
Qed.

Theorem convolution_gradient : Statements.Influence.convolution_gradient.
Proof.
move=> R p c k nz nj mz mj srcz srcj xz xj K fz fj Gz Gj hz hj.
have chain n m (src : 'I_m -> 'I_k -> option 'I_n) x f (G : 'M[R]_(p, m)) :
  gradient f (convolution src x K) G ->
    gradient (fun X => f (convolution src x X)) K (G *m (unfolded src x)^T).
  rewrite convolutionE => hf; apply: gradient_as (gradient_mulmx hf) _ => Y; by rewrite convolutionE.
split=> [||Dz Dj hDz hDj];
  [by eexists; exact: (chain _ _ _ _ _ _ hz)|by eexists; exact: (chain _ _ _ _ _ _ hj)|].
rewrite (gradient_unique hDz (chain _ _ _ _ _ _ hz)) (gradient_unique hDj (chain _ _ _ _ _ _ hj)) dot_columns.
have colE n m (src : 'I_m -> 'I_k -> option 'I_n) (x : 'M[R]_(c, n)) t : col t (unfolded src x)
  = patch src x t.
  by apply/colP => i; rewrite !mxE.
by apply: eq_bigr => t _; apply: eq_bigr => u _; rewrite !colE.
Qed.

Theorem post_activation : Statements.Influence.post_activation.
Proof.
move=> R phi fz fj w az aj sz sj gz gj [pz pj] [hz hj].
have chain (f : R -> R) a s g : derivative phi (w * a) s -> derivative f (phi (w * a)) g ->
    derivative (fun x => f (phi (x * a))) w (g * (s * a)).
  move=> hp hf; apply: (derivative_comp (g := fun x => phi (x * a))) => //.
  apply: (derivative_comp (g := fun x => x * a)) => //.
  by apply: derivative_as (derivative_affine 0 a w) _ _ => // y; rewrite add0r.
split=> [||Gz Gj hGz hGj]; try by eexists; apply: chain; eassumption.
rewrite (derivative_unique hGz (chain _ _ _ _ pz hz)) (derivative_unique hGj (chain _ _ _ _ pj hj)); ring.
Qed.

Lemma dot_col_mx (R : ringType) m n (a b : 'cV[R]_m) (c e : 'cV[R]_n) : dot (col_mx a c) (col_mx b e)
  = dot a b + dot c e.
Proof.
rewrite /dot big_split_ord /=; congr (_ + _); apply: eq_bigr => i _; rewrite !big_ord1.
  by rewrite !col_mxEu.
by rewrite !col_mxEd.
Qed.

Theorem two_vectors : Statements.Influence.two_vectors.
Proof.
move=> R d n L V j; split.
  apply: eq_bigr => z _; congr (_ * _); rewrite big_add1 /=.
  elim: L => [|L IH]; first by rewrite big_geq //= dot0l.
  by rewrite big_nat_recr //= dot_col_mx IH.
rewrite /lai_cache; congr (_ + _)%N; elim: L => [|L IH]; first by rewrite big_ord0.
by rewrite big_ord_recr /= IH.
Qed.

Theorem own_vote : Statements.Influence.own_vote.
Proof.
move=> R p n g j others; have split_ : \sum_z dot (g z) (g j) = norm (g j) ^+ 2 + others.
  by rewrite (bigD1 j) //= norm_sqr.
split; rewrite ?sqr_ge0 // split_ => neg; apply: le_lt_trans neg; by rewrite ler_addr sqr_ge0.
Qed.

Theorem one_sign : Statements.Influence.one_sign.
Proof.
move=> R d n L V j A3 pos.
have b0 z l : (0 < l <= L.+1)%N -> 0 <= beta (V z) j l by move=> hl; apply: cos_ge0; apply: A3.
have last : (0 < L.+1 <= L.+1)%N by rewrite leqnn.
split; apply: sumr_ge0 => z _.
- by rewrite big_nat; apply: sumr_ge0 => l hl; apply: mulr_ge0; [apply: pos|apply: b0].
- by apply: mulr_ge0; [rewrite big_nat; apply: sumr_ge0 => l hl; apply: pos|apply: b0].
by apply: mulr_ge0; [apply: pos|apply: b0].
Qed.

Section Smallest.
Variable R : realFieldType.
Let two0 : (2%:R : R) != 0. Proof. by rewrite pnatr_eq0. Qed.

Lemma gradient_half (c : R) x : gradient (half_square c) x (x - c%:M).
Proof.
move=> e e0; exists (2%:R * e) => [|D]; first by rewrite mulr_gt0 ?ltr0n.
rewrite /size1 /dot !big_ord1 /half_square !mxE mulr1n => hD.
have -> : (x 0 0 + D 0 0 - c) ^+ 2 / 2%:R - (x 0 0 - c) ^+ 2 / 2%:R - (x 0 0 - c) * D 0 0
  = D 0 0 * D 0 0 / 2%:R by field.
rewrite !normrM normfV (ger0_norm (ler0n _ 2)) mulrAC; apply: ler_wpmul2r => //.
by rewrite ler_pdivr_mulr ?ltr0n // mulrC.
Qed.

End Smallest.

Theorem printed_sign_is_wrong : Statements.Influence.printed_sign_is_wrong.
Proof.
move=> R data risk; have two0 : (2%:R : R) != 0 by rewrite pnatr_eq0.
pose g j : 'cV[R]_1 := (1 - data j)%:M.
exists 1%:M, 2%:R%:M, g, (fun j e => ((2%:R - e * data j) / (2%:R - e))%:M) => printed.
have inv2 : invmx (2%:R%:M : 'M[R]_1) = 2%:R^-1%:M.
  by rewrite invmx_scalar.
have printedE j : printed j = - ((1 - data ord0) * (1 - data j) / 2%:R).
  rewrite /printed /influence big_ord1 inv2 mul_scalar_mx dotZr /dot !big_ord1 !mxE !mulr1n; congr (- _).
  by rewrite mulrC.
have d0 : data ord0 = 0 by [].
have d1 : data ord_max = 2%:R by [].
split.
- split=> [x|]; last by rewrite unitmxE det_scalar1 unitfE.
  have := gradient_sum (index_enum _) (fun i => gradient_half (data i) x).
  have alg (y : R) : y - 0 + (y - 2%:R) = 2%:R * (y - 1) by ring.
  rewrite (_ : \sum_(i <- _) _ = 2%:R%:M *m (x - 1%:M)) //.
  by rewrite !big_ord_recl big_ord0 addr0 mul_scalar_mx; apply/colP => i; rewrite !ord1 !mxE /= !mulr1n;
    exact: alg.
- by move=> j; have := gradient_half (data j) 1%:M; rewrite -raddfB.
- move=> j; split=> [|e x e1]; first by rewrite mul0r !subr0 divff.
  have e2 : 0 < 2%:R - e by rewrite subr_gt0; apply: le_lt_trans e1 _; rewrite ltr1n.
  have sum2 y : \sum_i half_square (data i) y = (y 0 0) ^+ 2 / 2%:R + (y 0 0 - 2%:R) ^+ 2 / 2%:R.
    by rewrite !big_ord_recl big_ord0 addr0 /half_square /= subr0.
  rewrite -subr_ge0 /risk !sum2 /half_square !mxE mulr1n.
  rewrite (_ : _ - _ = (2%:R - e) / 2%:R * (x 0 0 - (2%:R - e * data j) / (2%:R - e)) ^+ 2).
    by rewrite mulr_ge0 ?sqr_ge0 // divr_ge0 ?ler0n // ltW.
  by field; rewrite gt_eqF.
- move=> j; have du := derivative_affine 2%:R (- data j) (0 : R).
  have dv := derivative_affine 2%:R (-1) (0 : R).
  have v0 : 2%:R + 0 * -1 != 0 :> R by rewrite mul0r addr0.
  have dq := derivative_mul du (derivative_inv (f := fun y : R => 2%:R + y * -1) v0 dv).
  apply: derivative_as (derivative_scale 2%:R^-1 (derivative_mul dq dq)) _ _ => [y|].
    by rewrite /half_square !mxE mulr1n subr0 mulrC expr2 !mulrN mulr1.
  rewrite printedE d0 !mul0r !addr0; field.
  by [].
have two : (0 : R) < 2%:R by rewrite ltr0n.
rewrite !printedE /half_square d0 d1 !mxE !mulr1n !subr0 !mulr0 !mul1r subr0; split.
- by rewrite oppr_lt0 ?mulr1 ?mul1r ?invr_gt0 ?divr_gt0 ?ltr01.
- rewrite (_ : 2%:R - 1 = 1) ?divr1; last by ring.
  by rewrite ltr_pmul2r ?invr_gt0 // expr1n expr2 -natrM ltr1n.
- by rewrite oppr_gt0 pmulr_llt0 ?invr_gt0 // subr_lt0 ltr1n.
by rewrite subrr mul0r expr0n /= mul0r expr1n divr_gt0 ?ltr01.
Qed.

(* A matrix stretches the sum of sizes by at most a factor. *)
Lemma size1_mul (R : realFieldType) p q (A : 'M[R]_(q, p)) : exists2 K, 0 < K & forall D : 'cV_p,
  size1 (A *m D) <= K * size1 D.
Proof. exact: (size1_linear (mulmx_linear 1 A)). Qed.

Lemma jacobian_add (R : realFieldType) p q (F F' : 'cV[R]_p -> 'cV[R]_q) x J J' :
  jacobian F x J -> jacobian F' x J' -> jacobian (fun y => F y + F' y) x (J + J').
Proof.
move=> hf hg e e0; have e2 : 0 < e / 2%:R by rewrite divr_gt0 ?ltr0n.
have [t t0 ht] := hf _ e2; have [s s0 hs] := hg _ e2; exists (Num.min t s); first by rewrite lt_minr t0.
move=> D; rewrite le_minr => /andP [/ht h1 /hs h2]; rewrite [e]splitr mulrDl mulmxDl.
rewrite opprD (addrACA (F (x + D)) (F' (x + D)) (- F x)) opprD (addrACA (F (x + D) - F x)).
exact: le_trans (size1_triangle _ _) (ler_add h1 h2).
Qed.
Lemma jacobian_sum (R : realFieldType) p q I (s : seq I) (F : I -> 'cV[R]_p -> 'cV[R]_q) x
  (J : I -> 'M_(q, p)) :
  (forall i, jacobian (F i) x (J i)) -> jacobian (fun y => \sum_(i <- s) F i y) x (\sum_(i <- s) J i).
Proof.
move=> hF; elim: s => [|i s IH] e e0.
  exists 1 => [|D _]; first exact: ltr01.
  by rewrite !big_nil mul0mx !subr0 size1_0 mulr_ge0 ?size1_ge0 ?(ltW e0).
have [t t0 ht] := jacobian_add (hF i) IH e0; exists t => // D /ht.
by rewrite !big_cons.
Qed.

Theorem removal : Statements.Influence.removal.
Proof.
move=> R n m p loss dl hess val gz theta j path hz twice stat;
  set H := \sum_i hess i => Hu [p0 cont] [r r0 still].
have vel : velocity path 0 (invmx H *m dl j theta).
  have jac : jacobian (fun x => \sum_i dl i x) theta H by apply: jacobian_sum => i; case: (twice i).
  have [K K0 hK] := size1_mul (invmx H); have [K' K'0 hK'] := size1_mul (hess j).
  set g := dl j theta; set u := invmx H *m g; set U := size1 u.
  have U0 : 0 <= U := size1_ge0 _.
  have eqn e : `|e| <= r -> \sum_i dl i (path e) = e *: dl j (path e).
    move=> /still h.
    have hh : gradient (fun x => \sum_i loss i x - e * loss j x) (path e)
      (\sum_i dl i (path e) + (- e) *: dl j (path e)).
      apply: gradient_as (gradient_add (gradient_sum (index_enum _) (fun i => (proj1 (twice i)) (path e)))
        (gradient_scale (- e) ((proj1 (twice j)) (path e)))) _ => Y; by rewrite mulNr.
    by apply/eqP; rewrite -subr_eq0 -scaleNr; apply/eqP; exact: gradient_unique hh h.
  move=> e e0; set B := K + U + 1.
  have B0 : 0 < B by rewrite ltr_spaddr ?ltr01 // addr_ge0 // ltW.
  pose a := Num.min (2%:R * K)^-1 (e / (4%:R * K * B)).
  pose b := Num.min 1 (e / (2%:R * K)).
  have a0 : 0 < a by rewrite lt_minr invr_gt0 !divr_gt0 ?mulr_gt0 ?ltr0n.
  have b0 : 0 < b by rewrite lt_minr ltr01 divr_gt0 ?mulr_gt0 ?ltr0n.
  have [t t0 ht] := jac a a0.
  have [s s0 hs] : exists2 s, 0 < s & forall D, size1 D <= s -> size1 (dl j (theta + D) - g) <= b.
    have [s s0 hs] := (proj2 (twice j)) 1 ltr01; exists (Num.min s (b / (1 + K'))) => [|D].
      by rewrite lt_minr s0 divr_gt0 // addr_gt0 ?ltr01.
    rewrite le_minr ler_pdivl_mulr ?addr_gt0 ?ltr01 // => /andP [/hs h1 h2].
    rewrite -(subrK (hess j *m D) (_ - g)); apply: le_trans (size1_triangle _ _) _.
    apply: le_trans (ler_add h1 (hK' D)) _; by rewrite -mulrDl mulrC.
  have [q q0 hq] := cont (Num.min t s) ltac:(by rewrite lt_minr t0).
  exists (Num.min r q) => [|x]; first by rewrite lt_minr r0.
  rewrite le_minr => /andP [/eqn step /hq]; rewrite !add0r p0 le_minr;
    set D := path x - theta => /andP [Dt Ds].
  have pE : path x = theta + D by rewrite /D addrCA subrr addr0.
  have {hs Ds}hs := hs D Ds; have {ht Dt}ht := ht D Dt; rewrite stat subr0 -pE step in ht; rewrite -pE in hs.
  have off : D - x *: u = invmx H *m (x *: (dl j (path x) - g) - (x *: dl j (path x) - H *m D)).
    rewrite /u scalemxAr -{1}(mulKmx Hu D) -mulmxBr; congr (_ *m _).
    by rewrite scalerBr opprB [RHS]addrC addrA subrK.
  have bound : size1 (D - x *: u) <= K * (`|x| * b + a * size1 D).
    rewrite off; apply: le_trans (hK _) _; apply: ler_wpmul2l; first exact: ltW.
    apply: le_trans (size1_triangle _ _) _; rewrite -scaleN1r !size1Z normrN1 mul1r; apply: ler_add => //.
    by rewrite ler_wpmul2l.
  have Ka : K * a <= 2%:R^-1.
    apply: (@le_trans _ _ (K * (2%:R * K)^-1)); first by rewrite ler_wpmul2l ?(ltW K0) // le_minl lexx.
    by rewrite le_eqVlt; apply/orP; left; apply/eqP; field; rewrite gt_eqF // pnatr_eq0.
  have Ka2 : K * a * (4%:R * B) <= e.
    apply: (@le_trans _ _ (K * (e / (4%:R * K * B)) * (4%:R * B))).
      by rewrite ler_wpmul2r ?mulr_ge0 ?ler0n ?(ltW B0) // ler_wpmul2l ?(ltW K0) // le_minl lexx orbT.
    by rewrite le_eqVlt; apply/orP; left; apply/eqP; field; rewrite !gt_eqF // ltr0n.
  have b1 : K * b <= K by rewrite ler_pimulr ?(ltW K0) // le_minl lexx.
  have b2 : K * b <= e / 2%:R.
    apply: (@le_trans _ _ (K * (e / (2%:R * K))));
      first by rewrite ler_wpmul2l ?(ltW K0) // le_minl lexx orbT.
    by rewrite le_eqVlt; apply/orP; left; apply/eqP; field; rewrite gt_eqF // pnatr_eq0.
  have small : size1 D <= 2%:R * (`|x| * B).
    have : size1 D <= K * (`|x| * b + a * size1 D) + `|x| * U.
      rewrite -{1}(subrK (x *: u) D); apply: le_trans (size1_triangle _ _) _.
      by rewrite size1Z ler_add2r.
    rewrite mulrDr (mulrA K a) [K * (_ * b)]mulrCA => h.
    have h1 : K * a * size1 D <= 2%:R^-1 * size1 D by rewrite ler_wpmul2r ?size1_ge0.
    have h2 : `|x| * (K * b) <= `|x| * K by rewrite ler_wpmul2l.
    have x0 := normr_ge0 x; rewrite -subr_ge0 in h; rewrite -subr_ge0 in h1; rewrite -subr_ge0 in h2.
    rewrite -subr_ge0; have := addr_ge0 (addr_ge0 h h1) (addr_ge0 h2 x0).
    rewrite -(pmulr_rge0 _ (ltr0Sn R 1)); congr (0 <= _); rewrite /B; field; by [].
  apply: le_trans bound _; rewrite mulrDr mulrCA [X in _ <= X]mulrC [e]splitr mulrDr; apply: ler_add.
    by rewrite ler_wpmul2l.
  rewrite mulrA; apply: (@le_trans _ _ (K * a * (2%:R * (`|x| * B)))).
    by rewrite ler_wpmul2l // mulr_ge0 // ltW.
  have alg (k y z : R) : k * (2%:R * (y * z)) = y * (k * (4%:R * z) / 2%:R) by field.
  rewrite alg.
  by rewrite ler_wpmul2l // ler_wpmul2r // invr_ge0 ler0n.
split=> //; have hz' z : gradient (val z) (path 0) (gz z) by rewrite p0; apply: hz.
have := velocity_gradient (gradient_sum (index_enum _) hz') vel.
by rewrite dot_suml.
Qed.

Theorem removal_of_quadratics : Statements.Influence.removal_of_quadratics.
Proof.
move=> R n m p loss hess b val gz theta j slope hz hl stat; set H := \sum_i hess i => Hu infl.
have [K K0 hK] := size1_mul (invmx H); have [K' K'0 hK'] := size1_mul (hess j).
set g := slope j theta; pose M e := H - e *: hess j.
pose r := (2%:R * (K * K'))^-1; have r0 : 0 < r by rewrite invr_gt0 !mulr_gt0 ?ltr0n.
have total x : \sum_i slope i x = H *m (x - theta).
  have -> : \sum_i slope i x = \sum_i slope i x - \sum_i slope i theta by rewrite stat subr0.
  rewrite -sumrB mulmx_suml; apply: eq_bigr => i _.
  by rewrite /slope opprD addrACA subrr addr0 -mulmxBr.
(* The distance of a stationary point from theta. *)
have near_by e (D c : 'cV_p) : `|e| <= r -> M e *m D = e *: c -> size1 D <= 2%:R * (`|e| * (K * size1 c)).
  move=> er MD; have DE : D = e *: (invmx H *m (c + hess j *m D)).
    rewrite -[LHS](mulKmx Hu) scalemxAr; congr (_ *m _).
    by rewrite scalerDr -MD mulmxBl -scalemxAl subrK.
  have : size1 D <= `|e| * (K * (size1 c + K' * size1 D)).
    rewrite {1}DE size1Z ler_wpmul2l //; apply: le_trans (hK _) _; rewrite ler_wpmul2l ?(ltW K0) //.
    by apply: le_trans (size1_triangle _ _) _; rewrite ler_add2l.
  have half : `|e| * (K * K') <= 2%:R^-1.
    have -> : 2%:R^-1 = r * (K * K') by rewrite /r invfM divfK // gt_eqF // mulr_gt0.
    by rewrite ler_wpmul2r // mulr_ge0 // ltW.
  have h2 := ler_wpmul2r (size1_ge0 D) half.
  rewrite !mulrDr => h1; rewrite -subr_ge0 in h1; rewrite -subr_ge0 in h2.
  rewrite -subr_ge0; have := addr_ge0 h1 h2; rewrite -(pmulr_rge0 _ (ltr0Sn R 1)).
  by congr (0 <= _); field.
have unit e : `|e| <= r -> M e \in unitmx.
  move=> er; rewrite -unitmx_tr -row_free_unit -kermx_eq0; apply/eqP/row_matrixP => k; rewrite row0.
  set v := row k _; have vM : v *m (M e)^T = 0 by apply/sub_kermxP; exact: row_sub.
  have Mv : M e *m v^T = e *: 0 by rewrite scaler0 -[LHS]trmxK trmx_mul trmxK vM trmx0.
  have := near_by e _ _ er Mv; rewrite size1_0 !mulr0 => v0; apply: trmx_inj; rewrite trmx0.
  apply/matrixP => a c; rewrite [RHS]mxE; apply/eqP; rewrite -normr_le0; apply: le_trans v0.
  rewrite /size1 (bigD1 a) //= (bigD1 c) //= -addrA ler_addl addr_ge0 ?sumr_ge0 // => ? _.
  exact: sumr_ge0.
pose path e := theta + invmx (M e) *m (e *: g).
have still e x : `|e| <= r -> gradient (fun y => \sum_i loss i y - e * loss j y) x 0 <-> x = path e.
  have GE : \sum_i slope i x + - e *: slope j x = M e *m (x - theta) - e *: g.
    have -> : slope j x = hess j *m (x - theta) + g by rewrite /g /slope mulmxBr addrA subrK.
    by rewrite total mulmxBl -scalemxAl -addrA -opprD -scalerDr scaleNr.
  move=> er; have hh : gradient (fun y => \sum_i loss i y - e * loss j y) x (M e *m (x - theta) - e *: g).
    rewrite -GE; apply: gradient_as (gradient_add (gradient_sum (index_enum _) (fun i => hl i x))
      (gradient_scale (- e) (hl j x))) _ => Y; by rewrite mulNr.
  split=> [h|xE].
    have /eqP := gradient_unique hh h; rewrite subr_eq0 => /eqP MD.
    by rewrite /path -MD mulKmx ?unit // addrCA subrr addr0.
  by move: hh; rewrite xE /path addrAC subrr add0r mulKVmx ?unit // subrr.
have path0 : path 0 = theta by rewrite /path scale0r mulmx0 addr0.
have cont : continuous path 0.
  move=> e e0; set k := 2%:R * (K * size1 g) + 1.
  have k0 : 0 < k by rewrite ltr_spaddr ?ltr01 // !mulr_ge0 ?ler0n ?size1_ge0 ?(ltW K0).
  exists (Num.min r (e / k)) => [|h]; first by rewrite lt_minr r0 divr_gt0.
  rewrite le_minr ler_pdivl_mulr // => /andP [hr he]; rewrite add0r path0 /path addrAC subrr add0r.
  have := near_by h _ g hr (mulKVmx (unit h hr) _) => /le_trans; apply; apply: le_trans he.
  by rewrite mulrCA ler_wpmul2l // ler_addl ler01.
have [||vel der] := @removal R n m p loss slope hess val gz theta j path hz _ stat Hu (conj path0 cont) _.
- move=> i; split=> [x|e e0]; first exact: hl.
  exists 1 => [|D _]; first exact: ltr01.
  rewrite /slope mulmxDr (addrAC (hess i *m theta)) (addrAC (hess i *m theta + b i)) subrr add0r subrr.
  by rewrite size1_0 mulr_ge0 ?size1_ge0 ?(ltW e0).
- by exists r => // e er; apply/still.
by exists path; split=> //; exists r => // e er x; exact: still.
Qed.
