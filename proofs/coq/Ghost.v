(** Section 3: proofs of Statements/Ghost.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Ghost.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Size.
Variables (R : realFieldType) (m n : nat).
Implicit Types (A B D G H X : 'M[R]_(m, n)) (f : 'M[R]_(m, n) -> R).

Lemma size1_ge0 D : 0 <= size1 D. Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0. Qed.
Lemma size1_triangle A B : size1 (A + B) <= size1 A + size1 B.
Proof.
rewrite /size1 -big_split; apply: ler_sum => i _; rewrite -big_split; apply: ler_sum => k _.
by rewrite mxE ler_norm_add.
Qed.
Lemma size1Z c D : size1 (c *: D) = `|c| * size1 D.
Proof.
rewrite /size1 mulr_sumr; apply: eq_bigr => i _; rewrite mulr_sumr; apply: eq_bigr => k _.
by rewrite mxE normrM.
Qed.
Lemma size1_0 : size1 (0 : 'M[R]_(m, n)) = 0.
Proof. by rewrite -(scale0r 0) size1Z normr0 mul0r. Qed.
Lemma size1_sum I r (P : pred I) (F : I -> 'M[R]_(m, n)) :
  size1 (\sum_(i <- r | P i) F i) <= \sum_(i <- r | P i) size1 (F i).
Proof.
elim/big_ind2: _ => [|A x B y hA hB|i _]; rewrite ?size1_0 //.
by apply: le_trans (size1_triangle _ _) _; apply: ler_add.
Qed.
Lemma size1_delta i k : size1 (delta_mx i k : 'M[R]_(m, n)) = 1.
Proof.
rewrite /size1 (bigD1 i) //= (bigD1 k) //= mxE !eqxx normr1 big1 => [|k' /negPf nk]; last first.
  by rewrite mxE nk andbF normr0.
rewrite addr0 big1 ?addr0 // => i' /negPf ni.
by rewrite big1 // => k' _; rewrite mxE ni normr0.
Qed.

(* A function has one gradient. *)
Lemma gradient_unique f X G H : gradient f X G -> gradient f X H -> G = H.
Proof.
move=> hG hH; apply/matrixP => i k; apply/eqP; rewrite -subr_eq0 -normr_le0.
apply/ler_addgt0Pr => e e0; rewrite add0r.
have [|t t0 ht] := hG (e / 2%:R); first by rewrite divr_gt0 ?ltr0n.
have [|u u0 hu] := hH (e / 2%:R); first by rewrite divr_gt0 ?ltr0n.
set s := Num.min t u; have s0 : 0 < s by rewrite lt_minr t0.
set D : 'M[R]_(m, n) := s *: delta_mx i k.
have D1 : size1 D = s by rewrite size1Z size1_delta mulr1 gtr0_norm.
have hD a : dot a D = s * a i k by rewrite dotZr dot_delta.
have {}ht : `|f (X + D) - f X - dot G D| <= e / 2%:R * s by rewrite -D1; apply: ht; rewrite D1 le_minl lexx.
have {}hu : `|f (X + D) - f X - dot H D| <= e / 2%:R * s by rewrite -D1; apply: hu;
  rewrite D1 le_minl lexx orbT.
rewrite -(ler_pmul2l s0) -{1}(gtr0_norm s0) -normrM mulrBr -!hD.
have -> : dot G D - dot H D = (f (X + D) - f X - dot H D) - (f (X + D) - f X - dot G D) by ring.
apply: le_trans (ler_norm_sub _ _) _; apply: le_trans (ler_add hu ht) _.
by rewrite -mulrDl -splitr mulrC.
Qed.
End Size.

(* The chain rule for an affine map into f's space: H is the gradient where <H, D> = <G, phi D>. *)
Section Chain.
Variables (R : realFieldType) (m n p q : nat) (phi : {linear 'M[R]_(m, n) -> 'M[R]_(p, q)}).

Lemma size1_linear : exists2 K, 0 < K & forall D, size1 (phi D) <= K * size1 D.
Proof.
exists (1 + \sum_i \sum_k size1 (phi (delta_mx i k))) => [|D].
  by rewrite ltr_paddr ?ltr01 //; apply: sumr_ge0 => i _; apply: sumr_ge0 => k _; apply: size1_ge0.
set K := \sum_i \sum_k _.
have K0 i k : size1 (phi (delta_mx i k)) <= K.
  rewrite /K (bigD1 i) //= (bigD1 k) //= -addrA ler_addl addr_ge0 //.
    by apply: sumr_ge0 => k' _; apply: size1_ge0.
  by apply: sumr_ge0 => i' _; apply: sumr_ge0 => k' _; apply: size1_ge0.
rewrite {1}(matrix_sum_delta D) linear_sum /=; apply: le_trans (size1_sum _ _ _) _.
rewrite /size1 mulr_sumr; apply: ler_sum => i _; rewrite -/(size1 _) linear_sum /=.
apply: le_trans (size1_sum _ _ _) _; rewrite mulr_sumr; apply: ler_sum => k _.
rewrite linearZ size1Z mulrC; apply: ler_wpmul2r => //; apply: le_trans (K0 i k) _.
by rewrite ler_addr ler01.
Qed.

Lemma gradient_chain (f : 'M[R]_(p, q) -> R) (g : 'M[R]_(m, n) -> R) X Y G H :
  (forall D, g (X + D) = f (Y + phi D)) -> gradient f Y G -> (forall D, dot H D = dot G (phi D)) ->
    gradient g X H.
Proof.
move=> hg hf hH e e0; have [K K0 hK] := size1_linear.
have [|t t0 ht] := hf (e / K); first by rewrite divr_gt0.
exists (t / K); first by rewrite divr_gt0.
move=> D; rewrite ler_pdivl_mulr // mulrC => hD.
have g0 : g X = f Y by rewrite -(addr0 X) hg linear0 addr0.
rewrite hg g0 hH; apply: le_trans (ht _ (le_trans (hK D) hD)) _.
by rewrite mulrAC ler_pdivr_mulr // -mulrA [_ * K]mulrC ler_wpmul2l ?hK // ltW.
Qed.
End Chain.

(* A weight matrix that acts from the left. *)
Lemma gradient_mulmx (R : realFieldType) p q n (W : 'M[R]_(p, q)) (A : 'M_(q, n)) f G :
  gradient f (W *m A) G -> gradient (fun X => f (X *m A)) W (G *m A^T).
Proof.
move=> hf; apply: (gradient_chain (phi := mulmxr_linear p A) _ hf) => D /=; first by rewrite mulmxDl.
by rewrite dot_mulr trmxK.
Qed.

Theorem pre_activation : Statements.Ghost.pre_activation.
Proof.
move=> R p q W az aj fz fj gz gj hz hj; split=> [||Gz Gj hGz hGj]; try exact: gradient_mulmx.
by rewrite (gradient_unique hGz (gradient_mulmx hz)) (gradient_unique hGj (gradient_mulmx hj)) dot_outer.
Qed.

Theorem ghost_influence : Statements.Ghost.ghost_influence.
Proof.
move=> R d n L W V j fz fj hs; split=> [l hl|Gz Gj hG].
  by have [hz hj] := hs l hl; split=> [z|]; apply: gradient_mulmx.
congr (- _); apply: eq_bigr => z _; rewrite big_nat [RHS]big_nat; apply: eq_bigr => l hl.
have [hz hj] := hs l hl; have [hGz hGj] := hG l hl.
by have [_ _ ->] := pre_activation (hz z) hj.
Qed.

(* The inner product of sums of outer products. *)
Lemma dot_columns (R : comRingType) p q m n (A : 'M[R]_(q, m)) (G : 'M_(p, m)) (B : 'M_(q, n))
  (H : 'M_(p, n)) :
  dot (G *m A^T) (H *m B^T) = \sum_t \sum_u dot (col t A) (col u B) * dot (col t G) (col u H).
Proof.
have outer r (C : 'M[R]_(p, r)) (D : 'M_(q, r)) : C *m D^T = \sum_t col t C *m (col t D)^T.
  apply/matrixP => i k; rewrite summxE mxE; apply: eq_bigr => t _; rewrite !mxE big_ord1 !mxE.
  by rewrite ?mxE.
rewrite (outer _ G) (outer _ H) dot_suml; apply: eq_bigr => t _; rewrite dot_sumr.
by apply: eq_bigr => u _; rewrite dot_outer.
Qed.

Theorem positions : Statements.Ghost.positions.
Proof.
move=> R p q m n W Az Aj fz fj Gz Gj hz hj; split=> [||Dz Dj hDz hDj]; try exact: gradient_mulmx.
rewrite (gradient_unique hDz (gradient_mulmx hz)) (gradient_unique hDj (gradient_mulmx hj)).
exact: dot_columns.
Qed.

(* With a bias: (W, b) acts on (a, 1). *)
Lemma gradient_bias (R : realFieldType) p q (W : 'M[R]_(p, q)) (b : 'cV_p) (a : 'cV_q) f g :
  gradient f (W *m a + b) g ->
  gradient (biased f a) (row_mx W b) (g *m (col_mx a 1%:M)^T).
Proof.
have acts (X : 'M[R]_(p, q + 1)) : lsubmx X *m a + rsubmx X = X *m col_mx a 1%:M.
  by rewrite -{3}(hsubmxK X) mul_row_col mulmx1.
move=> hf; have {}hf : gradient f (row_mx W b *m col_mx a 1%:M) g by rewrite mul_row_col mulmx1.
move=> e e0; have [t t0 ht] := gradient_mulmx hf e0.
by exists t => // D hD; rewrite /biased !acts; apply: ht.
Qed.

Theorem bias : Statements.Ghost.bias.
Proof.
move=> R p q W b az aj fz fj gz gj hz hj; split=> [||Gz Gj hGz hGj].
- by eexists; apply: (gradient_bias hz).
- by eexists; apply: (gradient_bias hj).
rewrite (gradient_unique hGz (gradient_bias hz)) (gradient_unique hGj (gradient_bias hj)) dot_outer.
congr (_ * _); rewrite /dot big_split_ord /= big_ord1 big_ord1 !col_mxEd !mxE mulr1; congr (_ + _).
by apply: eq_bigr => i _; rewrite !big_ord1 !col_mxEu.
Qed.

(* Copies of one matrix. *)
Section Copies.
Variables (R : realFieldType) (u p q : nat).

Lemma tied_linear : linear (@tied R u p q).
Proof. by move=> c X Y; apply/matrixP => k i; rewrite !mxE linearP !mxE. Qed.
Canonical tied_lin := Linear tied_linear.
Definition put (k : 'I_u) (X : 'M[R]_(p, q)) : 'M_(u, p * q) :=
  \matrix_(k' < u) (if k' == k then mxvec X else 0).
Lemma put_linear k : linear (put k).
Proof.
move=> c X Y; apply/matrixP => k' i; rewrite !mxE.
by case: eqP => _; rewrite ?linearP !mxE ?mulr0 ?addr0.
Qed.
Canonical put_lin k := Linear (put_linear k).

Lemma dot_put k (H : 'M[R]_(u, p * q)) D : dot H (put k D) = dot (vec_mx (row k H)) D.
Proof.
have -> : dot H (put k D) = dot (row k H) (mxvec D).
  rewrite /dot big_ord1 (bigD1 k) //= [X in _ + X]big1 ?addr0 => [|k' /negPf nk].
    by apply: eq_bigr => i _; rewrite !mxE eqxx.
  by apply: big1 => i _; rewrite !mxE nk mxE mulr0.
rewrite /dot big_ord1 -[row k H]vec_mxK [RHS]pair_bigA /=.
rewrite (reindex _ (curry_mxvec_bij _ _)) /=; apply: eq_bigr => -[i1 i2] _.
by rewrite !mxvecE vec_mxK.
Qed.
Lemma tied_sum D : tied u D = \sum_k put k D.
Proof.
apply/matrixP => k i; rewrite summxE (bigD1 k) //= !mxE eqxx big1 ?addr0 // => k' /negPf nk.
by rewrite !mxE eq_sym nk mxE.
Qed.

(* The gradient of the shared matrix is the sum over its uses. *)
Lemma gradient_sharing (W : 'M[R]_(p, q)) f a (g : 'I_u -> 'cV_p) : uses W f a g ->
  gradient (fun X => f (tied u X)) W (\sum_k g k *m (a k)^T).
Proof.
move=> [[H hH] hk]; have part k : vec_mx (row k H) = g k *m (a k)^T.
  have [h hh fh] := hk k; apply: (gradient_unique (f := fun X => f (changed W k X)) (X := W)).
    apply: (gradient_chain (phi := put_lin k) (G := H) _ hH) => D /=; last by rewrite dot_put.
    congr f; apply/matrixP => k' i; rewrite !mxE; case: eqP => _; rewrite ?linearD ?mxE ?addr0 //.
  by move=> e e0; have [t t0 ht] := gradient_mulmx hh e0; exists t => // D; rewrite !fh; apply: ht.
apply: (gradient_chain (phi := tied_lin) (G := H) _ hH) => D /=; first by rewrite linearD.
rewrite tied_sum dot_sumr dot_suml; apply: eq_bigr => k _; by rewrite dot_put part.
Qed.
End Copies.

Theorem sharing : Statements.Ghost.sharing.
Proof.
move=> R p q m n W fz fj az aj gz gj [hz hj]; split=> [||Gz Gj hGz hGj]; try exact: gradient_sharing.
rewrite (gradient_unique hGz (gradient_sharing hz)) (gradient_unique hGj (gradient_sharing hj)).
rewrite dot_suml; apply: eq_bigr => l _; rewrite dot_sumr.
by apply: eq_bigr => k _; rewrite dot_outer.
Qed.

(* Reading rows of a table is multiplying by a matrix of indicators. *)
Lemma gradient_rows (R : realFieldType) v p n (E : 'M[R]_(v, p)) (i : 'I_n -> 'I_v) f G :
  gradient f (rowsub i E) G -> gradient (fun X => f (rowsub i X)) E ((rowsub i 1%:M)^T *m G).
Proof.
move=> hf; apply: (gradient_chain (phi := mulmx_linear p (rowsub i 1%:M)) _ hf) => D /=.
  by rewrite linearD /= [rowsub i D]rowsubE.
by rewrite dot_mull trmxK.
Qed.

Theorem embedding : Statements.Ghost.embedding.
Proof.
move=> R v p m n E iz ij fz fj Gz Gj hz hj; split=> [||Dz Dj hDz hDj].
- by eexists; apply: (gradient_rows hz).
- by eexists; apply: (gradient_rows hj).
rewrite (gradient_unique hDz (gradient_rows hz)) (gradient_unique hDj (gradient_rows hj)).
rewrite -dot_tr !trmx_mul !trmxK -{1}[rowsub iz _]trmxK -{1}[rowsub ij _]trmxK dot_columns.
apply: eq_bigr => t _; apply: eq_bigr => u _; rewrite -!tr_row !dot_tr; congr (_ * _).
rewrite /dot big_ord1 (bigD1 (iz t)) //= !mxE eqxx mul1r big1 ?addr0 1?eq_sym // => k /negPf nk.
by rewrite !mxE eq_sym nk mul0r.
Qed.

Section Gain.
Variables (R : realFieldType) (p n : nat) (x : 'M[R]_(p, n)).
Definition spread (c : 'cV[R]_p) : 'M_(p, n) := \matrix_(i, t) (c i 0 * x i t).
Lemma spread_linear : linear spread.
Proof. by move=> k A B; apply/matrixP => i t; rewrite !mxE mulrDl mulrA. Qed.
Canonical spread_lin := Linear spread_linear.
Definition offset (c : 'cV[R]_p) : 'M_(p, n) := \matrix_(i, t) c i 0.
Lemma offset_linear : linear offset.
Proof. by move=> k A B; apply/matrixP => i t; rewrite !mxE. Qed.
Canonical offset_lin := Linear offset_linear.
End Gain.

Theorem gain : Statements.Ghost.gain.
Proof.
move=> R p n x gamma b f G hf; split.
  apply: (gradient_chain (phi := spread_lin x) _ hf) => D /=.
    by congr f; apply/matrixP => i t; rewrite !mxE mulrDl addrAC.
  rewrite /dot; apply: eq_bigr => i _; rewrite big_ord1 mxE mulr_suml.
  by apply: eq_bigr => t _; rewrite !mxE mulrA mulrAC.
apply: (gradient_chain (phi := offset_lin R p n) _ hf) => D /=.
  by congr f; apply/matrixP => i t; rewrite !mxE addrA.
rewrite /dot; apply: eq_bigr => i _; rewrite big_ord1 mxE mulr_suml.
by apply: eq_bigr => t _; rewrite !mxE.
Qed.

(* A readout that is added to the output. *)
Lemma gradient_readout (R : realFieldType) p q (a : 'cV[R]_q) (s : 'cV_p) f g :
  gradient f s g -> gradient (fun U => f (s + U *m a)) 0 (g *m a^T).
Proof.
move=> hf; apply: (gradient_chain (phi := mulmxr_linear _ a) _ hf) => D /=; first by rewrite add0r.
by rewrite dot_mulr trmxK.
Qed.

Theorem virtual_readout : Statements.Ghost.virtual_readout.
Proof.
move=> R d n L V j sz sj fz fj hz hj; split=> [l _|Gz Gj hG].
  by split=> [z|]; apply: gradient_readout.
apply: eq_bigr => z _; rewrite mulr_suml big_nat [RHS]big_nat; apply: eq_bigr => l hl.
have [hGz hGj] := hG l hl.
by rewrite (gradient_unique (hGz z) (gradient_readout _ (hz z))) (gradient_unique hGj (gradient_readout _ hj))
  dot_outer.
Qed.

Theorem aggregation : Statements.Ghost.aggregation.
Proof.
move=> R d n L V j G; rewrite /lai; under eq_bigr do rewrite mulr_suml.
rewrite exchange_big; apply: eq_bigr => l _ /=; rewrite mulmx_suml dot_sumr; apply: eq_bigr => z _.
rewrite -mulmxA [_^T *m _]mx11_scalar mul_mx_scalar dotZr [dot (grad j L) _]dotC; congr (_ * _).
by rewrite /alpha dotE /mxtrace big_ord1.
Qed.
