(** Appendix B: proofs of Statements/Gap.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gap.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Identities.
Variables (R : ringType) (d : nat -> nat) (n L : nat) (V : 'I_n -> trace R d) (j : trace R d).

Lemma ghost_lai : ghost L.+1 V j - lai L.+1 V j = \sum_z zeta L.+1 V j z.
Proof.
rewrite /ghost /lai -sumrB; apply: eq_bigr => z _.
rewrite mulr_suml -sumrB big_nat_recr //= subrr addr0.
by apply: eq_bigr => k _; rewrite mulrBr.
Qed.
Lemma ghost_lli : ghost L.+1 V j - lli L.+1 V j
  = \sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j l.
Proof.
by rewrite /ghost /lli -sumrB; apply: eq_bigr => z _; rewrite big_nat_recr //= addrK.
Qed.
Lemma lai_lli : lai L.+1 V j - lli L.+1 V j = \sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j L.+1.
Proof.
by rewrite /lai /lli -sumrB; apply: eq_bigr => z _; rewrite big_nat_recr //= mulrDl addrK mulr_suml.
Qed.
End Identities.

Theorem gap_of_pairs : Statements.Gap.gap_of_pairs.
Proof.
by move=> R d n L V j; rewrite /influence_ghost /influence_lai /influence_lli -!opprD ghost_lai ghost_lli.
Qed.

(* The powers of rho, counted from the last layer or from the first. *)
Lemma powers_rev (R : ringType) (rho : R) L :
  \sum_(1 <= l < L.+1) rho ^+ (2 * (L.+1 - l)) = \sum_(1 <= l < L.+1) rho ^+ (2 * l).
Proof.
rewrite big_nat_rev [in RHS]big_nat big_nat /=; apply: eq_bigr => l /andP [l1 lL].
by rewrite add1n subSS subKn // ltnW.
Qed.

Section Similarities.
Variables (R : rcfType) (d : nat -> nat) (n L : nat) (V : 'I_n -> trace R d) (j : trace R d).

Lemma alpha_le C (hA2 : A2 L V j C) z l : (0 < l <= L)%N -> `|alpha (V z) j l| <= C ^+ 2.
Proof.
case: hA2 => C0 hV hj /andP [l0 lL].
have lt : (l.-1 < L)%N by rewrite prednK.
apply: le_trans (cauchy_schwarz _ _) _; rewrite expr2.
by apply: ler_pmul; rewrite ?norm_ge0 ?hV ?hj.
Qed.

Lemma product_decay rho (A1 : all_decay L V j rho) z l : (0 < l <= L)%N ->
  norm (grad (V z) l) * norm (grad j l) <= rho ^+ (2 * (L - l)) * last_norms L V j z.
Proof.
case: A1 => hV hj hl; rewrite /last_norms mul2n -addnn exprD mulrACA.
by apply: ler_pmul; rewrite ?norm_ge0 ?hV ?hj.
Qed.
Lemma beta_decay rho (A1 : all_decay L V j rho) z l : (0 < l <= L)%N ->
  `|beta (V z) j l| <= rho ^+ (2 * (L - l)) * last_norms L V j z.
Proof. by move=> hl; apply: le_trans (cauchy_schwarz _ _) (product_decay A1 _ hl). Qed.
Lemma beta_ge0 (A3 : A3 L V j) z l : (0 < l <= L)%N -> 0 <= beta (V z) j l.
Proof. by move=> hl; apply: cos_ge0; apply: A3. Qed.
End Similarities.

Theorem bounded_similarity : Statements.Gap.bounded_similarity.
Proof. move=> R d n L V j C hA2; exact: alpha_le. Qed.

Theorem norm_product_bound : Statements.Gap.norm_product_bound.
Proof.
move=> R d n L V j rho [_ A1] z l hl; split; last exact: product_decay.
exact: le_trans (ler_norm _) (cauchy_schwarz _ _).
Qed.

(* The gap of a pair, and of all pairs, where each layer's distance has a bound. *)
Lemma zeta_le (R : rcfType) d n L (V : 'I_n -> trace R d) j C (b : 'I_n -> nat -> R) (A2 : A2 L V j C) z :
  (forall l, (0 < l < L)%N -> `|beta (V z) j l - beta (V z) j L| <= b z l) ->
  `|zeta L V j z| <= C ^+ 2 * \sum_(1 <= l < L) b z l.
Proof.
move=> hb; rewrite /zeta mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _.
rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l hl; have [l0 lL] := andP hl.
by rewrite normrM; apply: ler_pmul; rewrite ?hb // (alpha_le A2) // l0 ltnW.
Qed.
Lemma gap_le (R : rcfType) d n L (V : 'I_n -> trace R d) j C (b : 'I_n -> nat -> R) (A2 : A2 L.+1 V j C) :
  (forall z l, (0 < l < L.+1)%N -> `|beta (V z) j l - beta (V z) j L.+1| <= b z l) ->
  `|ghost L.+1 V j - lai L.+1 V j| <= C ^+ 2 * \sum_z \sum_(1 <= l < L.+1) b z l.
Proof.
move=> hb; rewrite ghost_lai mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _.
by apply: ler_sum => z _; apply: zeta_le => // l; apply: hb.
Qed.
Lemma influence_gap (R : numDomainType) d n L (V : 'I_n -> trace R d) j :
  `|influence_ghost L V j - influence_lai L V j| = `|ghost L V j - lai L V j|.
Proof. by rewrite /influence_ghost /influence_lai -opprD normrN. Qed.

Theorem zeta_bound : Statements.Gap.zeta_bound.
Proof.
move=> R d n [|L] V j C hA2 hA3 z; first by rewrite /zeta !big_geq // normr0 mulr0.
apply: (zeta_le (b := fun z l => beta (V z) j L.+1 + beta (V z) j l)) => // l /andP [l0 lL].
have h1 : 0 <= beta (V z) j l by apply: beta_ge0 hA3 _ _ _; rewrite l0 ltnW.
have h2 : 0 <= beta (V z) j L.+1 by apply: beta_ge0 hA3 _ _ _; rewrite leqnn.
by apply: le_trans (ler_norm_sub _ _) _; rewrite !ger0_norm // addrC.
Qed.

(* The sum over layers of a constant and a decayed product. *)
Lemma layer_sum (R : ringType) (rho b N : R) L :
  \sum_(1 <= l < L.+1) (b + rho ^+ (2 * (L.+1 - l)) * N) = L%:R * b
    + (\sum_(1 <= l < L.+1) rho ^+ (2 * l)) * N.
Proof. by rewrite big_split /= -mulr_suml powers_rev sumr_const_nat subn1 /= mulr_natl. Qed.

Lemma gap_without_alignment_ghost (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C :
  all_decay L.+1 V j rho -> A2 L.+1 V j C ->
  `|ghost L.+1 V j - lai L.+1 V j|
  <= C ^+ 2 * \sum_z (L%:R * `|beta (V z) j L.+1| + last_norms L.+1 V j z * \sum_(1 <= l < L.+1) rho ^+
    (2 * l)).
Proof.
move=> hA1 hA2.
apply: le_trans (gap_le (b :=
  fun z l => `|beta (V z) j L.+1| + rho ^+ (2 * (L.+1 - l)) * last_norms L.+1 V j z)
  hA2 _) _ => [z l /andP [l0 lL]|].
  apply: le_trans (ler_norm_sub _ _) _; rewrite addrC ler_add2l.
  by apply: beta_decay => //; rewrite l0 ltnW.
rewrite le_eqVlt; apply/orP; left; apply/eqP; congr (_ * _); apply: eq_bigr => z _.
by rewrite layer_sum [X in _ + X]mulrC.
Qed.

Theorem conservative : Statements.Gap.conservative.
Proof.
move=> R d n L V j rho C [_ hA1] hA2 hA3; rewrite influence_gap.
apply: le_trans (gap_without_alignment_ghost hA1 hA2) _.
rewrite le_eqVlt; apply/orP; left; apply/eqP; congr (_ * _); apply: eq_bigr => z _.
by rewrite ger0_norm //; apply: beta_ge0 hA3 _ _ _; rewrite leqnn.
Qed.

Theorem conservative_sharp : Statements.Gap.conservative_sharp.
Proof.
move=> R d n L V j rho C [_ hA1] hA2 hA3; rewrite influence_gap; apply: gap_le => // z l /andP [l0 lL].
have hl : (0 < l <= L.+1)%N by rewrite l0 ltnW.
have h1 : 0 <= beta (V z) j l by apply: beta_ge0 hA3 _ _ hl.
have h2 := le_trans (ler_norm _) (beta_decay hA1 z hl).
rewrite le_maxr; have [h|h] := lerP 0 (beta (V z) j l - beta (V z) j L.+1).
  by rewrite ger0_norm // ler_add2r h2 orbT.
by rewrite ltr0_norm // opprB ler_subl_addr ler_addl h1.
Qed.

Theorem gap_without_alignment : Statements.Gap.gap_without_alignment.
Proof.
move=> R d n L V j rho C [_ hA1] hA2 /=; split; first by rewrite distrC; apply: gap_without_alignment_ghost.
rewrite distrC ghost_lli mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => z _.
rewrite -powers_rev mulr_sumr mulr_sumr; apply: le_trans (ler_norm_sum _ _ _) _.
rewrite big_nat [X in _ <= X]big_nat; apply: ler_sum => l /andP [l0 lL].
have hl : (0 < l <= L.+1)%N by rewrite l0 ltnW.
by rewrite normrM; apply: ler_pmul; rewrite ?(alpha_le hA2) // mulrC beta_decay.
Qed.

Lemma lai_at_least (R : realDomainType) d n L (V : 'I_n -> trace R d) j abar :
  (forall z, abar <= alpha (V z) j L.+1) -> (forall z, 0 <= \sum_(1 <= l < L.+1) alpha (V z) j l) ->
  (forall z, 0 <= beta (V z) j L.+1) -> abar * (\sum_z beta (V z) j L.+1) <= lai L.+1 V j.
Proof.
move=> ha hsum hb; rewrite mulr_sumr; apply: ler_sum => z _; apply: ler_wpmul2r => //.
by rewrite big_nat_recr //=; apply: le_trans (ha z) _; rewrite ler_addr.
Qed.

Theorem lai_lower_bound : Statements.Gap.lai_lower_bound.
Proof.
move=> R d n L V j abar [abar0 ha] hsum hb; rewrite normrN.
exact: le_trans (lai_at_least ha hsum hb) (ler_norm _).
Qed.

(* The printed closed form of the geometric sum. *)
Lemma geometric_sum (R : fieldType) (rho : R) L : 1 - rho ^+ 2 != 0 ->
  \sum_(1 <= l < L.+1) rho ^+ (2 * l) = rho ^+ 2 * (1 - rho ^+ (2 * L)) / (1 - rho ^+ 2).
Proof.
move=> h; elim: L => [|L IH]; first by rewrite big_geq // muln0 expr0 subrr mulr0 mul0r.
by rewrite big_nat_recr //= IH mulnS exprD; field.
Qed.
Lemma rho_lt1 (R : realDomainType) (rho : R) : 0 < rho < 1 -> 0 < 1 - rho ^+ 2.
Proof. by case/andP => r0 r1; rewrite subr_gt0 expr_lt1 // ltW. Qed.

Theorem relative_conservative : Statements.Gap.relative_conservative.
Proof.
move=> R d n L V j rho C abar hA1 hA2 hA3 hsum [abar0 ha] T0.
have hb z : 0 <= beta (V z) j L.+1 by apply: beta_ge0 hA3 _ _ _; rewrite leqnn.
have low := lai_at_least ha hsum hb.
have lai0 : 0 < lai L.+1 V j by apply: lt_le_trans low; apply: mulr_gt0.
rewrite [X in _ / X](_ : _ = lai L.+1 V j); last by rewrite normrN gtr0_norm.
rewrite ler_pdivr_mulr //; apply: le_trans (conservative hA1 hA2 hA3) _.
rewrite -geometric_sum; last by rewrite gt_eqF // rho_lt1 //; case: hA1.
rewrite big_split /= -mulr_sumr -mulr_suml; set T := \sum_z beta _ _ _ in T0 low *.
set N := \sum_z last_norms _ _ _ _; set S := \sum_(1 <= l < L.+1) _.
have N0 : 0 <= N by apply: sumr_ge0 => z _; rewrite mulr_ge0 ?norm_ge0.
have S0 : 0 <= S by apply: sumr_ge0 => l _; rewrite exprM exprn_ge0 // sqr_ge0.
have -> : C ^+ 2 * (L%:R * T + N * S) = C ^+ 2 / abar * (L%:R + N / T * S) * (abar * T).
  by field; rewrite !gt_eqF.
apply: ler_wpmul2l low; apply: mulr_ge0; first by rewrite divr_ge0 ?sqr_ge0 // ltW.
by rewrite addr_ge0 ?ler0n // mulr_ge0 // divr_ge0 // ltW.
Qed.

Theorem lai_nearer_than_lli : Statements.Gap.lai_nearer_than_lli.
Proof.
move=> R d n L V j; rewrite !(distrC _ (ghost _ _ _)) ghost_lli ghost_lai /zeta.
set Q := \sum_z _; set Z := \sum_z _; set P := \sum_z _.
have -> : Z = P - Q.
  by rewrite /Z /P /Q -sumrB; apply: eq_bigr => z _; rewrite -sumrB; apply: eq_bigr => l _; rewrite mulrBr.
move=> Q0; rewrite -ltr_sqr ?nnegrE // !real_normK ?num_real // -subr_gt0.
have -> : P ^+ 2 - (P - Q) ^+ 2 = 2%:R * Q ^+ 2 * (P / Q - 1 / 2%:R) by field; rewrite Q0 ?pnatr_eq0.
by rewrite pmulr_rgt0 ?subr_gt0 // mulr_gt0 ?ltr0n // lt_def sqrf_eq0 Q0 sqr_ge0.
Qed.
