(** Proofs of Statements/Selection.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Selection.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma negbT_le (R : realDomainType) (x : R) : (0 < x) = false -> x <= 0.
Proof. by move=> h; rewrite leNgt h. Qed.

(* A number is its positive part less its negative one. *)
Lemma positive_part (R : realDomainType) (x : R) : x = Num.max x 0 - Num.max (- x) 0.
Proof.
have [h|h] := lerP x 0.
  by rewrite sub0r (max_idPl _) ?opprK // oppr_ge0.
by rewrite (max_idPr _) ?subr0 // oppr_le0 ltW.
Qed.

(* The regret, sample by sample. *)
Lemma regret_le (R : realFieldType) n (v v' b : 'I_n -> R) :
  (forall k, Num.max (v k) 0 - (if 0 < v' k then v k else 0) <= b k) ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k b k.
Proof. by move=> h; rewrite [X in _ - X]big_mkcond -sumrB; apply: ler_sum => k _; apply: h. Qed.

Theorem selection_regret : Statements.Selection.selection_regret.
Proof.
move=> R n v v' lambda l0; apply: regret_le => k; case: ifP => h.
  have [v0|v0] := lerP (v k) 0; last by rewrite subrr.
  rewrite sub0r distrC; apply: le_trans (ler_norm _).
  by rewrite ler_addr mulr_ge0 // ltW.
rewrite subr0; have [v0|v0] := lerP (v k) 0; first by [].
apply: le_trans (ler_norm _); rewrite ler_addl oppr_ge0; apply: mulr_ge0_le0 => //.
by rewrite leNgt h.
Qed.

Theorem certified_regret : Statements.Selection.certified_regret.
Proof.
move=> R n v v' e he; split.
  apply: regret_le => k; have := he k; rewrite ler_norml ler_subl_addr => /andP [h1 h2].
  rewrite le_maxr; case: ifP => h.
    rewrite gtr0_norm //; have [v0|v0] := lerP (v k) 0; last by rewrite subrr lexx orbT.
    by rewrite sub0r -ler_opp2 opprB opprK addrC -ler_subr_addr h1.
  rewrite (ler0_norm (negbT_le h)) subr0; have [v0|v0] := lerP (v k) 0; first by rewrite lexx orbT.
  by rewrite opprK h2.
have e0 k : 0 <= e k by apply: le_trans (he k).
exists (fun k => if 0 < v' k then v' k - e k else v' k + e k); split=> [k|].
  by case: ifP => _; rewrite addrAC subrr ?sub0r ?add0r ?normrN ger0_norm.
rewrite [X in _ - X]big_mkcond -sumrB; apply: eq_bigr => k _; case: ifP => h.
  by rewrite gtr0_norm // -[e k - _]opprB [X in _ - X]positive_part subKr.
by rewrite subr0 (ler0_norm (negbT_le h)) opprK addrC.
Qed.

Lemma scaled_part (R : realDomainType) (x r m M : R) : m <= r <= M ->
  m * Num.max x 0 - M * Num.max (- x) 0 <= r * x.
Proof.
move=> /andP [mr rM]; have [h|h] := lerP x 0.
  by rewrite mulr0 sub0r (max_idPl _) ?oppr_ge0 // mulrN opprK ler_wnmul2r.
by rewrite (max_idPr _) ?oppr_le0 ?(ltW h) // mulr0 subr0 ler_wpmul2r // ltW.
Qed.

Theorem sign_agreement : Statements.Selection.sign_agreement.
Proof.
move=> R n a r m M P N hr m0 N0; rewrite ltr_pdivr_mulr // mulrAC ltr_pdivl_mulr // => hPN.
have least : m * P - M * N <= \sum_z r z * a z.
  by rewrite !mulr_sumr -sumrB; apply: ler_sum => z _; apply: scaled_part.
have sum_a : \sum_z a z = P - N by rewrite -sumrB; apply: eq_bigr => z _; apply: positive_part.
have ghost0 : 0 < m * P - M * N by rewrite subr_gt0 [m * P]mulrC.
split; last exact: lt_le_trans least.
have [z _|none] := pickP 'I_n; last first.
  by move: N0; rewrite /N big1 ?ltxx // => z; move: (none z).
have mM : m <= M by have /andP [h1 h2] := hr z; apply: le_trans h2.
rewrite sum_a -(pmulr_rgt0 _ m0) mulrBr; apply: lt_le_trans ghost0 _.
by rewrite ler_add2l ler_opp2 ler_wpmul2r // ltW.
Qed.

Theorem concordance : Statements.Selection.concordance.
Proof.
move=> R n G A m M j k hw m0 hA; have [r1 /andP [m1 M1] ->] := hw k; have [r2 /andP [m2 M2] ->] := hw j.
have Ak : 0 < `|A 0 k| by rewrite normr_gt0; apply: contraTneq hA => ->; rewrite mulr0 ltxx.
rewrite normf_div ler_pdivl_mulr // mulrAC ler_pdivr_mulr // => h.
rewrite !normrM (gtr0_norm (lt_le_trans m0 m1)) (gtr0_norm (lt_le_trans m0 m2)); apply: (@le_trans _ _ (M * `|A 0 k|)); first exact: ler_wpmul2r.
by apply: le_trans h _; rewrite mulrC; apply: ler_wpmul2r.
Qed.

Theorem rank_cosine : Statements.Selection.rank_cosine.
Proof.
move=> R n G A m M hw m0 A0.
have nA : 0 < norm A by rewrite lt_def norm_eq0 A0 norm_ge0.
have [k hk] : exists k, A 0 k != 0.
  apply/existsP; apply: contraNT A0; rewrite negb_exists => /forallP h; apply/eqP/rowP => k.
  by have := h k; rewrite negbK mxE => /eqP.
have mM : m <= M by have [r /andP [h1 h2] _] := hw k; apply: le_trans h2.
have M0 : 0 < M := lt_le_trans m0 mM.
have key : dot G G + m * M * dot A A <= (m + M) * dot G A.
  rewrite /dot !big_ord1 !mulr_sumr -big_split; apply: ler_sum => i _ /=.
  have [r /andP [h1 h2] ->] := hw i; rewrite -subr_ge0.
  have -> : (m + M) * (r * A 0 i * A 0 i) - (r * A 0 i * (r * A 0 i) + m * M * (A 0 i * A 0 i))
          = (r - m) * (M - r) * A 0 i ^+ 2 by ring.
  by rewrite mulr_ge0 ?sqr_ge0 // mulr_ge0 ?subr_ge0.
have nG : 0 < norm G.
  rewrite lt_def norm_ge0 andbT norm_eq0; apply: contraTneq key => ->; rewrite !dot0l mulr0 add0r -ltNge.
  by rewrite mulr_gt0 ?mulr_gt0 // -norm_sqr exprn_gt0.
rewrite /cos ler_pdivl_mulr ?mulr_gt0 // mulrAC ler_pdivr_mulr ?addr_gt0 // [X in _ <= X]mulrC.
apply: le_trans key; rewrite -!norm_sqr -{2}(sqr_sqrtr (ltW (mulr_gt0 m0 M0))) -subr_ge0.
have -> : norm G ^+ 2 + Num.sqrt (m * M) ^+ 2 * norm A ^+ 2 - 2%:R * Num.sqrt (m * M) * (norm G * norm A)
        = (norm G - Num.sqrt (m * M) * norm A) ^+ 2 by ring.
exact: sqr_ge0.
Qed.

Section Centred.
Variables (R : fieldType) (n : nat).
Hypothesis n0 : n%:R != 0 :> R.
Implicit Types v w : 'rV[R]_n.

(* What the mean takes off the sum of squares. *)
Lemma centred_sqr v : dot (centred v) (centred v) = dot v v - n%:R * mean v ^+ 2.
Proof.
have sums : \sum_k v 0 k = n%:R * mean v by rewrite /mean mulrC divfK.
rewrite /dot !big_ord1 (eq_bigr (fun k => v 0 k * v 0 k - 2%:R * mean v * v 0 k + mean v ^+ 2)) => [|k _].
  by rewrite big_split sumrB /= -mulr_sumr sums sumr_const card_ord -[mean v ^+ 2 *+ n]mulr_natl; ring.
have algebra (x c : R) : (x - c) * (x - c) = x * x - 2%:R * c * x + c ^+ 2 by ring.
by rewrite /centred !mxE; exact: algebra.
Qed.

Lemma centredB v w c : centred (v - c *: w) = centred v - c *: centred w.
Proof.
have means : mean (v - c *: w) = mean v - c * mean w.
  rewrite /mean mulrA -mulrBl mulr_sumr -sumrB; congr (_ / _).
  by apply: eq_bigr => k _; rewrite !mxE.
have algebra (x y a b : R) : x - c * y - (a - c * b) = x - a - c * (y - b) by ring.
by apply/rowP => k; rewrite /centred means !mxE; exact: algebra.
Qed.
End Centred.

Lemma dot_step (R : comRingType) n (x y : 'rV[R]_n) c :
  dot (x - c *: y) (x - c *: y) = dot x x - 2%:R * c * dot x y + c ^+ 2 * dot y y.
Proof. by rewrite !dotBl !dotBr !dotZl !dotZr (dotC y x); ring. Qed.

Lemma less_step (R : fieldType) (p V U k lam tau : R) : lam != 0 ->
  2%:R * lam * p - V - lam ^+ 2 * U * (1 - (tau / lam) ^+ 2 * k)
  = tau ^+ 2 * (U * k) - (V - 2%:R * lam * p + lam ^+ 2 * U).
Proof. by move=> lam0; field. Qed.

Theorem rank_pearson : Statements.Selection.rank_pearson.
Proof.
move=> R n G A m M radicand hw m0 r0 A0.
have n0 : n%:R != 0 :> R.
  rewrite pnatr_eq0; apply: contraNneq A0 => n0; apply/eqP/rowP => k; by have := ltn_ord k; rewrite {2}n0.
have n1 : (0 < n)%N by rewrite lt0n; apply: contraNneq n0 => ->.
have mM : m <= M by have [r /andP [h1 h2] _] := hw (Ordinal n1); apply: le_trans h2.
set lam := (m + M) / 2%:R; set tau := (M - m) / 2%:R; set w := G - lam *: A.
have lam0 : 0 < lam by rewrite divr_gt0 ?ltr0n // addr_gt0 // (lt_le_trans m0).
have small : dot w w <= tau ^+ 2 * dot A A.
  rewrite /dot !big_ord1 mulr_sumr; apply: ler_sum => i _; rewrite !mxE.
  have [r /andP [h1 h2] ->] := hw i; rewrite -subr_ge0.
  have -> : tau ^+ 2 * (A 0 i * A 0 i) - (r * A 0 i - lam * A 0 i) * (r * A 0 i - lam * A 0 i)
          = (r - m) * (M - r) * A 0 i ^+ 2 by rewrite /tau /lam; field.
  by rewrite mulr_ge0 ?sqr_ge0 // mulr_ge0 ?subr_ge0.
set u := centred A; set v := centred G.
have U0 : 0 < dot u u by rewrite -norm_sqr exprn_gt0 // lt_def norm_eq0 A0 norm_ge0.
have spread : dot A A = dot u u * (1 + (squared_cv A)^-1).
  have nn : 0 < n%:R :> R by rewrite lt_def n0 ler0n.
  rewrite /squared_cv -/u mulrDr mulr1 !invfM !invrK.
  have -> : dot u u * ((dot u u)^-1 * n%:R * mean A ^+ 2) = n%:R * mean A ^+ 2.
    by rewrite !mulrA divff ?mul1r // gt_eqF.
  by rewrite /u centred_sqr // subrK.
have near : dot v v - 2%:R * lam * dot v u + lam ^+ 2 * dot u u <= tau ^+ 2 * dot A A.
  apply: le_trans small; rewrite -dot_step /u /v -centredB // -/w centred_sqr //.
  by rewrite ler_subl_addr ler_addl mulr_ge0 ?ler0n ?sqr_ge0.
have less : lam ^+ 2 * dot u u * radicand <= 2%:R * lam * dot v u - dot v v.
  rewrite -subr_ge0; have ratio : (M - m) / (m + M) = tau / lam.
    by rewrite /tau /lam invf_div mulrA divfK // pnatr_eq0.
  by rewrite /radicand ratio less_step ?gt_eqF // -spread subr_ge0.
have p0 : 0 < dot v u.
  have : 0 < 2%:R * lam * dot v u.
    apply: (@lt_le_trans _ _ (lam ^+ 2 * dot u u * radicand)); first by rewrite mulr_gt0 // mulr_gt0 // exprn_gt0.
    by apply: le_trans less _; rewrite ler_subl_addr ler_addl -norm_sqr sqr_ge0.
  by rewrite pmulr_rgt0 // mulr_gt0 ?ltr0n.
have nu : 0 < norm u by rewrite lt_def norm_ge0 norm_eq0 A0.
have nv : 0 < norm v.
  rewrite lt_def norm_ge0 andbT norm_eq0; apply: contraTneq p0 => ->; by rewrite dot0l ltxx.
rewrite /pearson /cos -/u -/v ler_pdivl_mulr ?mulr_gt0 //.
rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?mulr_ge0 ?sqrtr_ge0 ?norm_ge0 ?(ltW p0) //.
rewrite !exprMn sqr_sqrtr ?(ltW r0) // !norm_sqr.
have lam2 : 0 < lam ^+ 2 by rewrite exprn_gt0.
rewrite -(ler_pmul2l lam2); apply: le_trans (_ : dot v v * (2%:R * lam * dot v u - dot v v) <= _).
  have -> : lam ^+ 2 * (radicand * (dot v v * dot u u)) = dot v v * (lam ^+ 2 * dot u u * radicand) by ring.
  by apply: ler_wpmul2l less; rewrite -norm_sqr sqr_ge0.
rewrite -subr_ge0; have -> : lam ^+ 2 * dot v u ^+ 2 - dot v v * (2%:R * lam * dot v u - dot v v)
    = (lam * dot v u - dot v v) ^+ 2 by ring.
exact: sqr_ge0.
Qed.

Theorem identical_ranking : Statements.Selection.identical_ranking.
Proof.
move=> R d n N L V B c k hb ha K0 j.
have -> : ghost L V (B j) = (\sum_(1 <= l < L.+1) k l * c l) * \sum_z alpha (V z) (B j) 1 * beta (V z) (B j) L.
  rewrite mulr_sumr; apply: eq_bigr => z _; rewrite mulr_suml big_nat [RHS]big_nat; apply: eq_bigr => l hl.
  by rewrite hb // ha //; ring.
have -> : lai L V (B j) = (\sum_(1 <= l < L.+1) k l) * \sum_z alpha (V z) (B j) 1 * beta (V z) (B j) L.
  rewrite mulr_sumr; apply: eq_bigr => z _; rewrite mulrA; congr (_ * _).
  by rewrite mulr_suml big_nat [RHS]big_nat; apply: eq_bigr => l hl; rewrite ha.
by rewrite mulrA divfK.
Qed.

Theorem self_exclusion : Statements.Selection.self_exclusion.
Proof.
by move=> R p n g j; rewrite (bigD1 j) //= norm_sqr -ltr_subr_addl sub0r.
Qed.

Section Flip.
Variables (R : realFieldType) (rho : R) (W : forall l, 'M[R]_(two_layers l.+1, two_layers l)).

Lemma flip_layers x y s : flips rho W (pair x y) s ->
  [/\ act s 0 = pair x y, act s 1 = y%:M, grad s 1 = rho%:M & grad s 2 = 1%:M].
Proof.
case=> W0 W1 [up down] a0 g2; split=> //.
  rewrite (up 0%N) // W0 a0; apply/matrixP => i k; rewrite !ord1 !mxE !big_ord_recl big_ord0 !mxE /=.
  by rewrite mul0r mul1r add0r addr0.
by rewrite (down 1%N) // W1 g2 tr_scalar_mx mulmx1.
Qed.

Lemma flip_products z s x y : flips rho W (pair 1 1) z -> flips rho W (pair x y) s ->
  [/\ alpha z s 1 = x + y, alpha z s 2 = y, beta z s 1 = rho ^+ 2 & beta z s 2 = 1].
Proof.
move=> /flip_layers [z0 z1 h1 h2] /flip_layers [s0 s1 k1 k2].
rewrite /alpha /beta /= z0 z1 h1 h2 s0 s1 k1 k2 /dot; split; rewrite ?big_ord1 ?mxE ?mulr1n ?mul1r ?expr2 //.
by rewrite !big_ord_recl !big_ord0 !mxE /= !mul1r !addr0.
Qed.

Lemma flip_scores (V : 'I_1 -> trace R two_layers) s x y :
  (forall z, flips rho W (pair 1 1) (V z)) -> flips rho W (pair x y) s ->
  [/\ ghost 2 V s = (x + y) * rho ^+ 2 + y, lai 2 V s = x + y + y & lli 2 V s = y].
Proof.
move=> hV hs; have [a1 a2 b1 b2] := flip_products (hV 0) hs.
rewrite /ghost /lai /lli !big_ord1 /index_iota /= !big_cons !big_nil a1 a2 b1 b2.
by rewrite !mulr1 !addr0.
Qed.
End Flip.

Theorem rank_flip : Statements.Selection.rank_flip.
Proof.
move=> R rho W V j k _ [hV hj hk].
have [-> -> ->] := flip_scores hV hj; have [-> -> ->] := flip_scores hV hk.
by split; [ring | rewrite addNr mul0r add0r | ring | ring | split].
Qed.
